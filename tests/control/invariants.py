"""Checks that must hold after every event."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.control import State
from offcut.control.check_state import check_state
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Timer


@dataclass
class Before:
    phases: dict[str, str]
    held: set[str]
    event_id: int


class Watch:
    """Compares the state before and after each event, and what was done."""

    def __init__(self) -> None:
        self._keys: set[tuple[int, int]] = set()
        self._generations: dict[str, int] = {}
        self._versions = 0
        self._incarnations: set[int] = set()

    def forget(self) -> None:
        """Forget numbers, because the controller has an older journal.

        Generations and incarnations still may not repeat.
        """
        self._keys.clear()
        self._versions = 0

    def before(self, state: State) -> Before:
        phases = {name: node.phase for name, node in state.nodes.items()}
        return Before(phases, {name for name, phase in phases.items() if phase != "idle"}, state.event_id)

    def after(self, before: Before, state: State, event: ev.Event, effects: list[ef.Effect]) -> None:
        if isinstance(event, ev.JobProgressed):
            assert not effects
            assert state.event_id == before.event_id
            return
        assert state.event_id == before.event_id + 1
        assert check_state(state) == []
        self._check_order(effects)
        for effect in effects:
            key = (effect.cause, effect.index)
            assert effect.cause == state.event_id
            assert key not in self._keys
            self._keys.add(key)
            self._check_effect(effect, before, state)
        self._check_wanted(before, state, event, effects)

    @staticmethod
    def _check_order(effects: list[ef.Effect]) -> None:
        kinds = [type(effect) for effect in effects]
        solves = [i for i, kind in enumerate(kinds) if kind is ef.Solve]
        assert solves in ([], [len(kinds) - 1]), "one problem at most, and it comes last"

    @staticmethod
    def _check_wanted(before: Before, state: State, event: ev.Event, effects: list[ef.Effect]) -> None:
        released = [node for effect in effects if isinstance(effect, ef.Release) for node in effect.nodes]
        # Of gathered events, one may tell that a node is lost, and a later one that its agent answers.
        assert len(released) == len(set(released)) or isinstance(event, ev.EventsGathered)
        if isinstance(event, ev.NodesChanged):
            held = {*event.wanted, *event.lost} & before.held
            assert set(released) == held, "every wanted or lost node that was held is released, and no other"
            if held:
                assert isinstance(effects[0], ef.Release)
        together = event.events if isinstance(event, ev.EventsGathered) else (event,)
        changes = [each for each in together if isinstance(each, ev.NodesChanged)]
        offered = {offer.node for change in changes for offer in change.offered}
        for node in released:
            assert node in offered or node not in state.nodes
        if isinstance(event, ev.ReleaseAsked) and not event.nodes:
            assert not any(node.phase != "idle" for node in state.nodes.values())

    def _check_effect(self, effect: ef.Effect, before: Before, state: State) -> None:
        match effect:
            case ef.Claim():
                assert state.claiming
                assert not state.stopping
                assert len(effect.nodes) == len(set(effect.nodes)) > 0
                for name in effect.nodes:
                    assert before.phases[name] == "idle"
                    assert state.nodes[name].phase == "claimed"
                    assert Timer("boot", name) in state.timers
            case ef.StartWorkers():
                for member in effect.members:
                    assert member.incarnation not in self._incarnations, "an incarnation starts once"
                    self._incarnations.add(member.incarnation)
                    node = state.nodes[member.node]
                    assert node.phase == "up"
                    assert node.incarnation == member.incarnation
            case ef.SetGeneration():
                assert effect.generation > self._generations.get(effect.job, 0)
                self._generations[effect.job] = effect.generation
                sizes = state.jobs[effect.job].job.sizes
                assert not effect.members or len(effect.members) in sizes
                assert len({member.node for member in effect.members}) == len(effect.members)
            case ef.Solve():
                assert effect.version > self._versions
                self._versions = effect.version
                assert effect.version == state.version
                assert effect.problem == state.open_problem
                assert state.claiming
                assert not state.stopping
            case ef.SetTimer():
                assert effect.at_s >= state.now_s
