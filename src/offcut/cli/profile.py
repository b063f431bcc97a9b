"""`offcut profile`: measure a model layer by layer on this machine, for `offcut plan`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from offcut.cli.output import Sheet, line, print_json, print_table
from offcut.errors import InputError, OffcutError


def profile(
    model: Annotated[str, typer.Argument(help="The function that builds the nn.Module, as model.py:build.")],
    micro_batch: Annotated[str, typer.Option(help="Micro-batch sizes to measure, such as 1,2,4.")] = "1",
    input_shape: Annotated[
        str | None,
        typer.Option(
            "--input",
            help="One sample: 3x224x224, or 128:int64:50000 for whole numbers below 50000; "
            "default: the file's own example_inputs(n).",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the profile here.")] = None,
    device: Annotated[str | None, typer.Option(help="Such as cpu or cuda:0; default: a GPU if there is one.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements per layer; the median counts.")] = 7,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of the measurement.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="The profile as JSON on standard output.")] = False,
) -> None:
    """Measure forward, backward and weight-gradient time, activations and parameters of every layer.

    Example: `offcut profile model.py:build --micro-batch 8,16 -o model.json`
    """
    # Only offcut.torch imports PyTorch; the measurement is a process of its own.
    command = [sys.executable, "-m", "offcut.torch.programs.profile_layers", model, "--micro-batches", micro_batch]
    command += ["--repeats", str(repeats), "--threads", str(threads)]
    command += ["--input", input_shape] if input_shape is not None else []
    command += ["--device", device] if device is not None else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        raise InputError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "bad input.")
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        missing = "No module named 'torch'" in done.stderr
        raise OffcutError(
            f"the measurement failed: {last[0]}",
            next_step="Install PyTorch: pip install 'offcut[torch]'." if missing else "",
        )
    document = json.loads(done.stdout)
    if output is not None:
        output.write_text(json.dumps(document, indent=1) + "\n")
    if as_json:
        print_json(document)
    else:
        _print(document, output)


def _print(document: dict[str, Any], output: Path | None) -> None:
    size = document["micro_batches"][-1]
    figures = ("forward ms", "backward ms", "of it weights ms", "cut MB", "stored MB", "parameters MB", "±%")
    title = f"{document['model']} on {document['device']}, micro-batch of {size}"
    table = Sheet("layer", *figures, right=figures, title=title)
    for layer in document["layers"]:
        table.add_row(
            layer["name"] + (" (skips)" if layer.get("skips") else ""),
            *(f"{1e3 * layer[key][-1]:.3f}" for key in ("forward_s", "backward_s", "weight_grad_s")),
            *(f"{size * layer[key] / 1e6:.3f}" for key in ("cut_bytes_per_sample", "stored_bytes_per_sample")),
            f"{layer['parameter_bytes'] / 1e6:.3f}",
            f"{50 * layer.get('spread', 0.0):.0f}",
        )
    print_table(table)
    if output is not None:
        line(f"Written to {output}. Next: offcut plan {output} --hardware cluster.toml")
