"""A pilot's options, and which refusals of it may pass. All pure."""

from __future__ import annotations

from pathlib import Path

import pytest

from offcut.cluster.slurm import pilot_script
from offcut.cluster.slurm.records import NodeRow

#: As sbatch of a Slurm 22.05.8 says it, after "Batch job submission failed: ".
LIMIT = (
    "Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
)
NO_NODE = "Requested node configuration is not available"


@pytest.mark.parametrize(
    ("said", "nodes", "passes"),
    [
        (LIMIT, {"n1": ("idle", ())}, True),
        ("AssocMaxSubmitJobLimit", {"n1": ("idle", ())}, True),
        (NO_NODE, {"n1": ("idle", ("DRAIN",)), "n2": ("down", ())}, True),
        (NO_NODE, {"n1": ("idle", ("DRAIN",)), "n2": ("allocated", ())}, False),
        ("Invalid account or account/partition combination specified", {}, False),
    ],
)
def test_refusals_that_may_pass(said: str, nodes: dict[str, tuple[str, tuple[str, ...]]], passes: bool) -> None:
    rows = [NodeRow(name=name, state=state, flags=frozenset(flags)) for name, (state, flags) in nodes.items()]
    assert pilot_script.may_pass(said, rows) == passes


def test_pilots_have_one_name_however_the_directory_is_written() -> None:
    assert pilot_script.pilot_name(Path("/home/ann/offcut")) == pilot_script.pilot_name(Path("/home/ann/../ann/offcut"))
    assert pilot_script.pilot_name(Path("/home/ann/offcut")) != pilot_script.pilot_name(Path("/home/bob/offcut"))


def test_the_comment_of_a_pilot_is_one_line() -> None:
    comment = pilot_script.pilot_comment(Path("/home/ann/a\nb"))
    assert comment.endswith(", /home/ann/a?b")
    assert comment.startswith("offcut pilot of the controller on ")
