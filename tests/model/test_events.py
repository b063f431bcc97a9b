"""Events and effects have the properties that other packages rely on."""

from __future__ import annotations

import pickle
import typing

import pytest

from offcut.control.step import _HANDLERS
from offcut.errors import InputError, OffcutError
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Member


def test_every_kind_has_a_name_of_its_own_and_a_time():
    kinds = typing.get_args(ev.Event)
    names = {typing.get_args(typing.get_type_hints(kind)["kind"])[0] for kind in kinds}
    assert len(names) == len(kinds)
    assert all("time_s" in kind.__slots__ for kind in kinds)


@pytest.mark.parametrize("kind", typing.get_args(ev.Event))
def test_every_event_but_progress_has_a_handler(kind):
    assert (kind in _HANDLERS) != (kind is ev.JobProgressed)


def test_every_effect_names_its_cause():
    for kind in typing.get_args(ef.Effect):
        assert issubclass(kind, ef._Caused)


def test_members_are_told_apart_by_incarnation():
    assert Member("n1", 1) != Member("n1", 2)
    assert min(Member("n2", 1), Member("n1", 2), Member("n1", 1)) == Member("n1", 1)


def test_a_pickled_error_keeps_its_next_step():
    back = pickle.loads(pickle.dumps(InputError("what", next_step="do this")))
    assert (type(back), back.what, back.next_step, back.exit_code) == (InputError, "what", "do this", 2)
    assert str(back) == "what do this"
    assert str(OffcutError("what")) == "what"
