"""The pairs of examples: a plain script in `examples/plain` and its elastic version, of the same name."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair, and what the tests do with it.

    Args:
        name: the name of both files.
        added: the most lines that the elastic version adds.
        short: arguments for a run of a second.
        steps: how many steps the training has by `long`; 0: it is not tested under events of the membership here.
        long: arguments for a run that has room for the events.
        framework: whether it needs a framework; `tests/torch/idioms` and `lightning` have those under events.
        preloads: a module that workers under events have imported, because it takes seconds.
    """

    name: str
    added: int
    short: tuple[str, ...]
    steps: int = 0
    long: tuple[str, ...] = ()
    framework: bool = False
    preloads: str = ""


PAIRS = [
    Pair("digits.py", 6, ("--epochs", "2"), 60, ("--epochs", "4")),
    Pair("quantised.py", 9, ("--epochs", "2"), 60, ("--epochs", "4")),
    Pair("imagenet_style.py", 9, ("--epochs", "1"), 60, ("--epochs", "5")),
    Pair("gan.py", 11, ("--epochs", "1"), 56, ("--epochs", "2")),
    Pair("flood_filling.py", 8, ("--epochs", "1"), 56, ("--epochs", "7")),
    Pair("nanogpt.py", 10, ("--max-iters", "12"), 60, ("--max-iters", "60")),
    Pair("lstm.py", 10, ("--epochs", "1"), 69, ("--epochs", "3")),
    Pair("stream.py", 11, ("--epochs", "2", "--rows", "60"), 69, ("--epochs", "3")),
    Pair("lora_trainer.py", 2, ("--epochs", "1"), framework=True),
    Pair("lightning_digits.py", 1, ("--epochs", "2"), 60, ("--epochs", "4"), True, "offcut.torch.lightning"),
]


def added_lines(pair: Pair) -> list[str]:
    """Return the lines that the elastic version adds, without empty ones."""
    files = [EXAMPLES / kind / pair.name for kind in ("plain", "elastic")]
    shown = subprocess.run(
        ["git", "diff", "--no-index", "-w", *files], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    return [line for line in shown if line.startswith("+") and line[1:].strip() and not line.startswith("+++ ")]
