"""What the demo says of the main queue agrees with what it checks."""

from __future__ import annotations

from typing import Any

import pytest

from offcut.cli.demo.command import _promise_words
from offcut.cli.demo.promises import delay_figures


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"hand_backs": {"bound_s": 1.0}}, "every wanted node was released within 1 s"),
        ({"hand_backs": {"bound_s": 3.0}, "main_jobs": {}}, "every main job started within 3 s of its sbatch"),
    ],
)
def test_the_first_promise_names_its_bound(document: dict[str, Any], words: str) -> None:
    assert _promise_words("queue_never_waits", document) == words
    assert _promise_words("no_step_lost", document) == "no step lost"


def test_figures_of_start_delays() -> None:
    assert delay_figures([0.4, 0.1, 0.2, 2.5]) == {"n": 4, "p50_s": 0.4, "p90_s": 2.5, "longest_s": 2.5}
    assert delay_figures([]) == {"n": 0, "p50_s": None, "p90_s": None, "longest_s": None}
