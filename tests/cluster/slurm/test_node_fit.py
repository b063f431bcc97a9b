"""Nodes that lack the features or generic resources of pilots are not claimed. All pure."""

from __future__ import annotations

from datetime import datetime

import pytest

from offcut.cluster.slurm import text
from offcut.cluster.slurm.decision import Decider, LookInput
from offcut.cluster.slurm.node_fit import unfit_nodes
from offcut.cluster.slurm.records import NodeRow, View
from offcut.cluster.slurm.site import make_site
from offcut.cluster.slurm.slurm_config import SlurmSetup

# As `scontrol show node --oneliner` of a Slurm 22.05.8 writes them.
NODES = """NodeName=n1 AvailableFeatures=a100,ib ActiveFeatures=a100,ib Gres=gpu:a100:4(S:0-1),shard:8 State=IDLE
NodeName=n2 AvailableFeatures=v100 ActiveFeatures=v100 Gres=gpu:v100:2 State=IDLE
NodeName=n3 AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) State=IDLE
"""
SETUP = SlurmSetup(
    config={},
    partitions=text.read_partitions("PartitionName=idle Nodes=n[1-3] State=UP"),
    nodes=text.read_node_setups(NODES),
)


@pytest.mark.parametrize(
    ("fields", "fit"),
    [
        ({}, ["n1", "n2", "n3"]),
        ({"constraint": "a100"}, ["n1"]),
        ({"constraint": "a100&ib"}, ["n1"]),
        ({"constraint": "ib|v100"}, ["n1", "n2"]),
        ({"constraint": "[a100|v100]"}, ["n1", "n2", "n3"]),  # Slurm judges that
        ({"gres": "gpu"}, ["n1", "n2"]),
        ({"gres": "gpu:4"}, ["n1"]),
        ({"gres": "gpu:v100"}, ["n2"]),
        ({"gres": "gpu:a100:4,shard:2"}, ["n1"]),
        ({"gres": "gpu:2", "constraint": "v100"}, ["n2"]),
    ],
)
def test_which_nodes_fit(fields: dict[str, str], fit: list[str]) -> None:
    unfit = unfit_nodes(SETUP, make_site({"partition": "idle", **fields}, "test"))
    assert [name for name in SETUP.nodes if name not in unfit] == fit


def test_a_node_that_does_not_fit_is_not_chosen_and_says_why() -> None:
    nodes = {name: NodeRow(name=name, state="idle") for name in SETUP.nodes}
    view = View(time_s=0.0, nodes=nodes, waiting=(), own={}, partition=SETUP.partitions["idle"])
    site = make_site({"partition": "idle", "gres": "gpu:4"}, "test")
    decision = Decider(site, "me", "offcut-00000001", SETUP).decide(view, LookInput(pilots={}, now=datetime.now()))
    assert [one.node for one in decision.chosen] == ["n1"]
    assert decision.not_claimed() == {
        "it has not 'gpu:4', but gpu:v100:2": 1,
        "it has not 'gpu:4', but no generic resource": 1,
    }
    assert {one.node: one.why for one in decision.idle if not one.safe} == {
        "n2": "it has not 'gpu:4', but gpu:v100:2",
        "n3": "it has not 'gpu:4', but no generic resource",
    }
