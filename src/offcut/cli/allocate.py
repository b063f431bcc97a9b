"""`offcut allocate`: decide an allocation problem from a file."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offcut.cli.output import Sheet, line, print_table, text

if TYPE_CHECKING:
    from offcut.allocate.explain import Explanation
    from offcut.model import Allocation, AllocationProblem


class SolverChoice(StrEnum):
    """The choices of --solver."""

    EXACT = "exact"
    MILP = "milp"


class ObjectiveChoice(StrEnum):
    """The choices of --objective, which are those of `offcut.model.Objective`."""

    WEIGHTED = "weighted"
    SAMPLES = "samples"
    SPEEDUP = "speedup"
    MAX_MIN = "max_min"
    PRIORITY = "priority"
    DEADLINE = "deadline"


def allocate(
    problem: Annotated[Path, typer.Argument(help="The problem as JSON, or JSON Lines; `-` reads standard input.")],
    solver: Annotated[
        SolverChoice | None,
        typer.Option(help="`exact` or `milp` (HiGHS); by default `exact` wherever counts can express the problem."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option(help="Decide by a policy instead: a name, or `my_policy.py:allocate`.")
    ] = None,
    objective: Annotated[
        ObjectiveChoice | None, typer.Option(help="Maximise this instead of the problem's own objective.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(min=0.0, metavar="S", help="Stop after S seconds with the best answer so far.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Say why each job has its size.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document on standard output; one per line for JSON Lines.")
    ] = False,
) -> None:
    """Compute how many nodes each job should have: the proven optimum, with an explanation.

    Example: `offcut allocate problem.json --explain`, where problem.json holds

    `{"nodes": 5, "horizon_s": 120, "jobs": [
    {"id": "a", "curve": {"nodes": [1, 2, 4], "rate": [100, 190, 340]}, "current": 2, "grow_cost_s": 18},
    {"id": "b", "curve": {"nodes": [1, 2, 4], "rate": [50, 99, 190]}}]}`

    Rates are samples/s of the whole job at each size. Policies: equal-share, equal-share-published, first-come, greedy,
    static, pollux, max-min.
    """
    from dataclasses import replace

    from offcut.allocate import json_format
    from offcut.allocate import policy as policies
    from offcut.allocate.explain import explain as explain_job
    from offcut.errors import InputError

    if policy is not None and solver is not None:
        raise InputError("--policy and --solver exclude each other.", next_step="Give one of them.")
    rule = policies.load(policy) if policy is not None else None
    given = (
        json_format.read_text(sys.stdin.read(), "standard input") if str(problem) == "-" else json_format.read(problem)
    )
    for where, one in given:
        asked = one if objective is None else replace(one, objective=objective.value)
        try:
            if rule is None:
                answer = _solve(asked, solver, time_limit)
            else:
                answer = _compared(policies.decide(rule, asked, str(policy)), asked, time_limit)
        except InputError as error:
            raise InputError(f"{where}: {error.what}", next_step=error.next_step) from None
        reasons = [explain_job(asked, job.id, answer) for job in asked.jobs] if explain else []
        if as_json:
            out = json_format.answer(answer)
            if reasons:
                out["explain"] = {reason.job: reason.as_json() for reason in reasons}
            print(json.dumps(out))
        else:
            _print(asked, answer, reasons, where)


def _solve(problem: AllocationProblem, solver: SolverChoice | None, time_limit_s: float | None) -> Allocation:
    from offcut.allocate.solve import solve
    from offcut.errors import AllocationError, InputError

    try:
        return solve(problem, solver=None if solver is None else solver.value, time_limit_s=time_limit_s)
    except AllocationError as error:
        # The problem came from a file, so a problem without a solution is a fault of the input.
        raise InputError(error.what, next_step=error.next_step) from None


def _compared(answer: Allocation, problem: AllocationProblem, time_limit_s: float | None) -> Allocation:
    """Add the bound that the solver proves to a policy's answer, to show how far it is from the optimum."""
    from dataclasses import replace

    bound = max(answer.objective, _solve(problem, None, time_limit_s).bound)
    return replace(answer, bound=bound, proven=bound - answer.objective <= 1e-9 * abs(bound))


def _print(problem: AllocationProblem, answer: Allocation, reasons: list[Explanation], where: str) -> None:
    figures = ("now", "nodes", "change")
    table = Sheet("job", *figures, *(["of class"] if answer.classes else []), right=figures, title=where)
    for job in problem.jobs:
        n = answer.nodes[job.id]
        row = [job.id, str(job.current), str(n), f"{n - job.current:+d}" if n != job.current else ""]
        if answer.classes:
            row.append(", ".join(f"{count} {name}" for name, count in answer.classes[job.id].items()))
        table.add_row(*row)
    print_table(table)
    verdict = "proven optimal" if answer.proven else f"not proven optimal; no answer exceeds {answer.bound:.10g}"
    used = sum(answer.nodes.values())
    line(
        f"{used} of {problem.nodes} nodes used, objective {answer.objective:.10g} ({verdict}), {answer.solve_ms:.3g} ms"
    )
    for reason in reasons:
        line("")
        line(text(reason.job, "bold"))
        for sentence in reason.words:
            line(sentence, indent="  ")
