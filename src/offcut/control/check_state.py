"""Checks that a state agrees with itself: in the tests after every event, and in production if it is switched on."""

from __future__ import annotations

from collections.abc import Iterator

from offcut.control import admission
from offcut.control.state import ENDED, LIVE, JobState, NodeState, State
from offcut.control.sweep_state import SweepState
from offcut.model.events import Timer


def check_state(state: State) -> list[str]:
    """Return what is wrong with the state, one sentence each; empty if nothing is.

    Takes time in proportion to the number of nodes and jobs.
    """
    found: list[str] = []
    owners: dict[str, str] = {}
    for job_id, job in state.jobs.items():
        for name in job.nodes:
            if name in owners:
                found.append(f"Node {name} is assigned to {owners[name]} and to {job_id}.")
            if name not in state.nodes:
                found.append(f"Node {name} is assigned to {job_id} and does not exist.")
            owners[name] = job_id
        found += [f"Job {job_id}: {wrong}." for wrong in _check_job(state, job_id, job)]
        if job.phase == "running":
            found += [f"Job {job_id}: {wrong}." for wrong in _check_running(state, job_id, job)]
        if job.phase == "finishing":
            found += [f"Job {job_id}: {wrong}." for wrong in _check_finishing(state, job_id, job)]
    for name, node in state.nodes.items():
        if owners.get(name) != node.job:
            found.append(f"Node {name} says that its job is {node.job}, but it is assigned to {owners.get(name)}.")
        found += [f"Node {name}: {wrong}." for wrong in _check_node(state, name, node)]
        found += [f"Node {name}: {wrong}." for wrong in _check_worker(state, name, node)]
    if set(state.ended) != {job_id for job_id, job in state.jobs.items() if job.phase in ENDED}:
        found.append("The list of ended jobs is not that of the jobs that have ended.")
    found += _check_totals(state)
    for sweep_id, sweep in state.sweeps.items():
        found += [f"Sweep {sweep_id}: {wrong}." for wrong in _check_sweep(state, sweep)]
    return found


def _check_sweep(state: State, sweep: SweepState) -> Iterator[str]:
    for number, trial in sweep.search.trials.items():
        job_id = sweep.job_id(number)
        if trial.phase in ("running", "halted") and trial.end is None and job_id not in sweep.trial_jobs:
            yield f"trial {number} is {trial.phase} and has no job"
        if trial.phase in ("asked", "ready") and job_id in state.jobs:
            yield f"trial {number} is {trial.phase} and has a job"
    for job_id, trial_job in sweep.trial_jobs.items():
        job = state.jobs.get(job_id)
        if trial_job.ended != (job is None or job.phase in ENDED):
            yield f"the job {job_id} has ended, and this is not noted, or the other way round"
    for job_id in (*sweep.copies, *sweep.held):
        job = state.jobs.get(job_id)
        if job is not None and job.phase in LIVE:
            yield f"the job {job_id} is {job.phase}, and waits for a copy or is held for one"
    if not {copy.sources[0] for copy in sweep.copies.values()} >= set(sweep.held):
        yield "a job is held for no copy"


def _check_job(state: State, job_id: str, job: JobState) -> Iterator[str]:
    if job.phase not in (*LIVE, "finishing") and (job.nodes or job.members):
        yield f"it is {job.phase} and has nodes or members"
    if not (job.phase in ENDED) == (job.ended_s is not None) == bool(job.reason):
        yield "it has ended without a time and a reason, or has these and has not ended"
    if len({member.node for member in job.members}) != len(job.members):
        yield "two of its members are on one node"
    if (job.phase == "running" and not job.members) or (job.phase == "waiting" and job.members):
        yield f"it is {job.phase} with {len(job.members)} members"
    if (job.probe is not None) != (Timer("probe", job_id) in state.timers):
        yield "it tries a size without a limit in time, or has the limit and tries none"
    if job.probe is not None and job.phase not in LIVE:
        yield f"it is {job.phase} and tries a size"
    if job.generation < max(job.forming, default=0):
        yield "a generation is forming that is newer than its newest"


def _check_running(state: State, job_id: str, job: JobState) -> Iterator[str]:
    if job.size not in job.job.sizes:
        yield f"it runs at size {job.size}, which is not allowed"
    if job.failures > job.job.max_failures:
        yield f"it runs after {job.failures} failures"
    for member in job.members:
        node = state.nodes.get(member.node)
        if node is None or (node.job, node.incarnation, node.worker) != (job_id, member.incarnation, "member"):
            yield f"its member on {member.node} is not that node's worker"


def _check_finishing(state: State, job_id: str, job: JobState) -> Iterator[str]:
    alive = [
        member
        for member in job.members
        if member.node in job.nodes and (node := state.nodes.get(member.node)) and node.worker == "member"
    ]
    if job.launch is not None:
        if set(alive) != set(job.members) - set(job.launch.finished) or not alive:
            yield "some of its members have neither ended well nor still run, or all have ended"
    elif job.members[:1] != tuple(alive[:1]):
        yield "its first member is gone, which must be the last to go"
    if {member.node for member in alive} != set(job.nodes):
        yield "it has other nodes than those of the members that still run"
    if Timer("finish", job_id) not in state.timers:
        yield "its end has no limit in time"


def _check_node(state: State, name: str, node: NodeState) -> Iterator[str]:
    if node.name != name:
        yield f"it is called {node.name}"
    free = node.job is None and Timer("set_aside", name) not in state.timers and node.phase != "leaving"
    if (name in state.free) != free:
        yield "it is free and not listed so, or listed so and not free"
    if node.phase == "leaving" and (node.job is not None or Timer("leaving", name) not in state.timers):
        yield "it is leaving with a job, or without a limit in time"
    if node.phase == "idle" and node.job is not None:
        yield "it is assigned and not claimed"
    if node.phase == "claimed" and Timer("boot", name) not in state.timers:
        yield "it boots without a limit in time"
    if node.phase == "up" and node.job is None and Timer("hold", name) not in state.timers:
        yield "it is held without a job and without a limit in time"


def _check_worker(state: State, name: str, node: NodeState) -> Iterator[str]:
    if node.worker != "none" and (node.phase != "up" or node.job is None):
        yield f"it has a worker, and is {node.phase} with job {node.job}"
    if node.worker == "none" and node.phase == "up" and node.job is not None:
        yield "it is up and assigned, and has no worker"
    if node.worker == "starting" and Timer("ready", name, node.incarnation) not in state.timers:
        yield "its worker starts without a limit in time"
    if node.worker == "stopped" and Timer("retry", name, node.incarnation) not in state.timers:
        yield "its worker has stopped and will not be started again"
    job = state.jobs.get(node.job or "")
    if node.worker == "leaving" and (job is None or not job.restarts):
        yield "its worker leaves for a new launch, and its job's mode is not restart"
    if node.worker == "member" and (job is None or node.member not in job.members):
        yield "its worker is a member of no generation"


def _check_totals(state: State) -> Iterator[str]:
    if sum(job.probe is not None for job in state.jobs.values()) > state.settings.max_probes:
        yield "More jobs try sizes than may."
    if not set(state.free) <= set(state.nodes):
        yield "A node is free that does not exist."
    problem = state.open_problem
    if problem is None:
        return
    live = {job_id: job for job_id, job in state.jobs.items() if job.phase in LIVE}
    if problem.nodes != len(state.free) + sum(len(job.nodes) for job in live.values()):
        yield f"The allocation problem has {problem.nodes} nodes, which is not what is free and held."
    asked = {request.id: request.current for request in problem.jobs}
    for job_id, current in asked.items():
        if job_id not in live or len(live[job_id].nodes) != current:
            yield f"The allocation problem says that {job_id} has {current} nodes."
    for job in admission.admitted(state):
        if job.job.id not in asked:
            yield f"Job {job.job.id} could run and does not take part in the allocation."
