"""`offcut curve`: a job's scaling curve, as measured and as estimated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from offcut.cli.connection import connect
from offcut.cli.options import JobArgument, JsonOption, StateOption
from offcut.cli.output import Sheet, line, print_json, print_table
from offcut.errors import InputError
from offcut.number_format import format_count

_BAR = 16


def curve(
    job: JobArgument,
    figure: Annotated[Path | None, typer.Option(help="Draw the curve into this file (.png, .svg, .pdf).")] = None,
    state: StateOption = None,
    json: JsonOption = False,
) -> None:
    """Show a job's scaling curve: measurements, estimates, and the costs of its resizes.

    Example: `offcut curve digits --figure digits.png`
    """
    with connect(state) as controller:
        description = controller.job(job).curve()
    if figure is not None:
        _draw(description, figure)
    if json:
        print_json(description | {"figure": None if figure is None else str(figure)})
        return
    _print(description)
    if figure is not None:
        line(f"Figure: {figure}")


def _draw(description: dict[str, Any], path: Path) -> None:
    from offcut.report.scaling_figure import scaling_curve

    try:
        scaling_curve(description, description["id"]).savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise InputError(f"--figure {path}: {error}.", next_step="Name a file that ends in .png.") from None


def _print(description: dict[str, Any]) -> None:
    own = {point["size"]: point for point in description["own"]}
    family = {point["size"]: point for point in description["family_points"]}
    curve = {
        n: rate for n, rate in zip(description["curve"]["nodes"], description["curve"]["rate"], strict=True) if n > 0
    }
    deviation = {int(n): value for n, value in (description["deviation"] or {}).items()}
    measured = bool(own or family)
    figures = ("nodes", "samples/s" if measured else "relative", "±", "measured", "its family", "per node")
    table = Sheet(*figures, "", right=figures)
    most, first = max(curve.values()), next(rate / n for n, rate in curve.items())
    for n in sorted({*curve, *own, *family}):
        rate = curve.get(n)
        table.add_row(
            str(n),
            "" if rate is None else format_count(rate),
            f"{2 * deviation[n]:.0%}" if measured and n in deviation else "",
            format_count(own[n]["rate"]) if n in own else "",
            format_count(family[n]["rate"]) if n in family else "",
            "" if rate is None else f"{rate / n / first:.0%}",
            "" if rate is None else "█" * max(1, round(_BAR * rate / most)),
        )
    print_table(table)
    for sentence in description["words"]:
        line(sentence)
    line(
        f"Growing costs {description['grow_cost_s']:.2g} s of progress, "
        f"shrinking {description['shrink_cost_s']:.2g} s; "
        f"{description['probes']} sizes were tried, for {description['probe_node_s']:,.0f} node-seconds."
    )
