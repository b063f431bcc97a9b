"""What holds after every event, whatever it was."""

from __future__ import annotations

from dataclasses import dataclass

from offcut.control import State
from offcut.control.state import ENDED
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.model.events import Timer

_WITH_NODES = {"waiting", "running", "finishing"}


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
        """The controller has an older journal; numbers of generations and incarnations are not given again for that."""
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
        check_state(state)
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
        assert len(released) == len(set(released))
        if isinstance(event, ev.NodesChanged):
            held = {*event.wanted, *event.lost} & before.held
            assert set(released) == held, "every wanted or lost node that was held is released, and no other"
            if held:
                assert isinstance(effects[0], ef.Release)
        for node in released:
            offered = isinstance(event, ev.NodesChanged) and node in {offer.node for offer in event.offered}
            assert offered or node not in state.nodes
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


def check_state(state: State) -> None:
    """The state agrees with itself."""
    assigned: dict[str, str] = {}
    for job_id, job in state.jobs.items():
        for name in job.nodes:
            assert name not in assigned, f"{name} is of {assigned[name]} and {job_id}"
            assigned[name] = job_id
        assert job.phase in _WITH_NODES or not (job.nodes or job.members)
        assert (job.phase in ENDED) == (job.ended_s is not None) == bool(job.reason)
        assert len({member.node for member in job.members}) == len(job.members)
        assert job.phase != "running" or job.members
        assert (job.probe is not None) == (Timer("probe", job_id) in state.timers), "no job tries a size for ever"
        assert job.probe is None or job.phase in ("waiting", "running")
        assert job.phase != "waiting" or not job.members
        if job.phase == "running":
            assert job.size in job.job.sizes
            assert job.failures <= job.job.max_failures
            for member in job.members:
                node = state.nodes[member.node]
                assert (node.job, node.incarnation, node.worker) == (job_id, member.incarnation, "member")
        if job.phase == "finishing":
            alive = [m for m in job.members if m.node in job.nodes and state.nodes[m.node].worker == "member"]
            if job.restarts:
                assert set(alive) == set(job.members) - set(job.launch.finished) != set(), (
                    "all have ended well or still run"
                )
            else:
                assert job.members[0] in alive, "its members go one by one, the first of them last"
            assert {m.node for m in alive} == set(job.nodes)
            assert Timer("finish", job_id) in state.timers
        assert job.generation >= max(job.forming, default=0)
    for name, node in state.nodes.items():
        assert node.name == name
        idle = node.job is None and Timer("set_aside", name) not in state.timers and node.phase != "leaving"
        assert (name in state.free) == idle
        assert node.phase != "leaving" or (node.job is None and Timer("leaving", name) in state.timers)
        assert assigned.get(name) == node.job
        assert node.worker == "none" or (node.phase == "up" and node.job is not None)
        assert node.phase != "idle" or node.job is None, "a node is claimed when it is assigned"
        if node.phase == "claimed":
            assert Timer("boot", name) in state.timers, "no node boots for ever"
        if node.phase == "up" and node.job is None:
            assert Timer("hold", name) in state.timers, "no node is held for nothing for ever"
        if node.worker == "starting":
            assert Timer("ready", name, node.incarnation) in state.timers
        if node.worker == "stopped":
            assert Timer("retry", name, node.incarnation) in state.timers
        if node.worker == "none" and node.phase == "up":
            assert node.job is None, "a node that is up and assigned has a worker"
        assert node.worker != "leaving" or state.jobs[node.job or ""].restarts
        if node.worker == "member":
            member_of = state.jobs[node.job or ""]
            assert node.member in member_of.members
    assert sum(job.probe is not None for job in state.jobs.values()) <= state.settings.max_probes
    assert set(state.free) <= set(state.nodes)
    assert set(assigned) <= set(state.nodes)
    if state.open_problem is not None:
        live = [job for job in state.jobs.values() if job.phase in ("waiting", "running")]
        assert state.open_problem.nodes == len(state.free) + sum(len(job.nodes) for job in live)
        held = {job.job.id: len(job.nodes) for job in live}
        asked = {request.id: request.current for request in state.open_problem.jobs}
        assert all(held[job_id] == current for job_id, current in asked.items())
        without = [state.jobs[job_id].job for job_id in held.keys() - asked.keys()]
        assert all(job.sizes.smallest > state.open_problem.nodes for job in without), "whoever could run takes part"
