"""A script is loaded as an import would, and its random numbers are those of a script that runs alone."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from offcut.errors import InputError
from offcut.torch.membership.agent_link import AgentLink
from offcut.torch.programs.run_trial import _SeedsGiven, load
from offcut.wire.worker_env import ENV_LOADING

SCRIPT = """
import dataclasses

@dataclasses.dataclass
class Point:
    x: int

def trial(params):
    return Point(params["x"]), __name__

if __name__ == "__main__":
    raise AssertionError
"""


@pytest.fixture(autouse=True)
def no_module_left() -> Iterator[None]:
    before = set(sys.modules)
    state = random.getstate(), np.random.get_state()
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    random.setstate(state[0])
    np.random.set_state(state[1])


@pytest.mark.parametrize(("file", "name"), [("search7.py", "search7"), ("json.py", "__trial_script__")])
def test_a_script_is_loaded_as_a_module_that_can_be_pickled(tmp_path: Path, file: str, name: str) -> None:
    script = tmp_path / file
    script.write_text(SCRIPT)
    point, module = load(str(script))({"x": 3})  # type: ignore[misc]
    assert (module, pickle.loads(pickle.dumps(point))) == (name, point)


@pytest.mark.parametrize("seeded", [True, False])
def test_seeds_that_a_script_gives_hold_in_every_trial(seeded: bool) -> None:
    with _SeedsGiven() as seeds:
        if seeded:
            random.seed(7)
            np.random.seed(7)
        random.random()
        np.random.random()
    drawn, left = [], np.random.get_state()
    for _ in range(2):
        # In a fork Python itself seeds its generator; numpy's is where the script left it.
        random.seed()
        np.random.set_state(left)
        seeds.restore()
        drawn.append((random.random(), np.random.random()))
    if seeded:
        alone, numpy_alone = random.Random(7), np.random.RandomState(7)
        alone.random()
        numpy_alone.random()
        assert drawn == [(alone.random(), numpy_alone.random())] * 2
    else:
        assert drawn[0][0] != drawn[1][0]
        assert drawn[0][1] != drawn[1][1]


def test_nothing_can_be_trained_while_a_script_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENV_LOADING, "1")
    with pytest.raises(InputError, match=r"Begin it in trial\(params\)"):
        AgentLink.from_environment()
