"""What the controller knows. `step` owns a State and may mutate it; all others only read it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

from offcut.advisor import JobHistories
from offcut.control.sweep_state import SweepState
from offcut.model import Allocation, AllocationProblem, CostModel, Job
from offcut.model.events import Member, Timer, WorkerExited

#: `idle`: it may be claimed. `claimed`: the claim was sent, the agent boots. `up`: the agent answers. `leaving`: its
#: worker left by itself because the queue wants the node; the queue's event will follow.
NodePhase = Literal["idle", "claimed", "up", "leaving"]
#: `none`: no worker of the node's job. `starting`: it boots. `ready`: it waits for a generation. `member`: it is in the
#: generation. `stopped`: it failed, and is started again when its timer fires. `leaving`: it was told to end, so that
#: the script can be launched again (mode `restart`).
WorkerPhase = Literal["none", "starting", "ready", "member", "stopped", "leaving"]
#: `finishing`: the script is past its training and runs to its end.
JobPhase = Literal["waiting", "running", "paused", "finishing", "finished", "failed", "cancelled"]

LIVE: frozenset[JobPhase] = frozenset({"waiting", "running"})
ENDED: frozenset[JobPhase] = frozenset({"finished", "failed", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an administrator may choose; part of the journal's first entry, so that a fold repeats every decision."""

    #: How long an allocation is expected to last (`T_fwd` in BFTrainer).
    horizon_s: float = 120.0
    #: What a resize costs the objective: `stall` (the job makes no progress for the cost's seconds) or `published` (as
    #: in BFTrainer's paper).
    cost_model: CostModel = "stall"
    #: Seconds of progress that growing costs a job whose job file does not say.
    grow_cost_s: float = 0.3
    #: Seconds of progress that shrinking costs a job whose job file does not say.
    shrink_cost_s: float = 0.2
    #: Both costs for a job of mode `restart`: its ranks end, start again, and go back to their last checkpoint.
    restart_cost_s: float = 30.0
    #: The curve model, which estimates scaling curves: a built-in name (`oracle`: the jobs' own curves are believed) or
    #: `FILE.py:FUNCTION`.
    profiler: str = "gp"
    #: At most this many jobs try sizes at once.
    max_probes: int = 2
    #: No job tries a size for longer than this.
    probe_limit_s: float = 120.0
    #: How long a job is expected to run if nothing is known of its length.
    expected_run_s: float = 1800.0
    #: A ready worker waits this long for workers of its job that are starting, so that they join in one resize.
    join_window_s: float = 0.3
    #: A job of mode `restart` waits this long for nodes that are about to come before it is launched again.
    relaunch_window_s: float = 5.0
    #: A claimed node whose agent has not answered after this is released.
    boot_limit_s: float = 60.0
    #: A worker that has not reported ready after this is ended, and counts as a failure.
    ready_limit_s: float = 180.0
    #: A member that was told to leave and has not left after this is killed.
    stop_limit_s: float = 30.0
    #: The last holders of a job's state have this long to save it before the job goes on elsewhere.
    depart_limit_s: float = 3.0
    #: If a generation breaks and no member is found dead, a new one is set after this; the next time after twice as
    #: long, and so on.
    broken_wait_s: float = 1.0
    #: After this many generations in a row that did not form, all workers of the job are started again, and that counts
    #: as a failure.
    most_renewals: int = 6
    #: A node is set aside after this many starts in a row have failed there.
    forgiven_starts: int = 3
    #: A node that is set aside is not claimed for this long.
    aside_s: float = 600.0
    #: A claimed node that no job uses is released after this.
    hold_s: float = 10.0
    #: An agent without a controller releases its node after this if no worker runs there.
    empty_limit_s: float = 30.0
    #: An agent without a controller releases its node after this if workers run there.
    orphan_limit_s: float = 600.0
    #: A node whose worker left by itself is used again if the queue has not wanted it after this.
    leaving_limit_s: float = 30.0
    #: At most this many jobs run at once; without it, as many as the allocation gives nodes to.
    max_jobs: int | None = None
    #: With `max_jobs`, a job that will end within this makes room for its successor, which boots meanwhile.
    successor_lead_s: float = 10.0
    #: Which free nodes a growing job gets: those that became idle `together` with its own, or `random` ones (for
    #: comparison).
    placement: Literal["together", "random"] = "together"
    #: A node that was released by `offcut release NODE` is not claimed again for this long.
    rest_s: float = 60.0
    #: A solver, or a policy in its place, that has not answered after this is killed and replaced.
    solve_limit_s: float = 10.0
    #: A solver that failed is asked again after this.
    solve_again_s: float = 5.0
    #: The first restart of a failed worker waits this long, each further one twice as long.
    retry_wait_s: float = 0.5
    #: This many of the jobs that ended last stay in the controller's memory, with what was learned of their scaling;
    #: the others are in the history: `offcut status --all` shows them.
    recent_jobs: int = 100
    #: A job is forgotten this long after its end: it leaves the history, and its logs, checkpoints and records are
    #: deleted. `inf`: no job is.
    keep_jobs_s: float = 30 * 86400.0
    #: The logs of one job have at most this many bytes together, and so have those of pilots, and the controller's own.
    #: The oldest are deleted; of one that is still written to only the end is kept.
    log_bytes: int = 1_000_000_000
    #: The journal keeps about this many events at most, and at least half as many; the report at the end begins with
    #: the first of them. A restart reads only those since the last snapshot.
    journal_events: int = 100_000
    #: The report at the end of `offcut up` is given up after this.
    report_limit_s: float = 60.0
    #: `telemetry.jsonl`, from which the report takes the jobs' throughput, has at most this many bytes; the oldest go.
    telemetry_bytes: int = 100_000_000
    #: Check after every event that what the controller knows agrees with itself. What does not is logged, and the
    #: controller goes on. Takes time in proportion to the number of nodes and jobs.
    check_state: bool = False


@dataclass(frozen=True, slots=True)
class FailedStart:
    """A worker of `job` ended before its first step on a node. No job: the node did not boot."""

    time_s: float
    job: str
    reason: str
    #: Whether the script is known to start: the job has trained, or one of its family. Only then the node may be bad.
    proven: bool = True


@dataclass(slots=True)
class NodeState:
    name: str
    phase: NodePhase
    #: When the node became idle: nodes that became idle together tend to be wanted together.
    idle_since_s: float
    until_s: float | None = None
    job: str | None = None
    worker: WorkerPhase = "none"
    incarnation: int = 0

    @property
    def member(self) -> Member:
        return Member(self.name, self.incarnation)


@dataclass(slots=True)
class Progress:
    """How far the job is: from its reports, which are not journalled, and from its workers' exits, which are."""

    generation: int = 0
    step: int = 0
    samples: int = 0
    loss: float = float("nan")
    time_s: float = 0.0
    #: Steps and samples of the whole training, if it goes on like this; None: not known.
    total_steps: int | None = None
    total_samples: int | None = None


@dataclass(slots=True)
class Probe:
    """A job has one size for a moment, so that its throughput there is measured."""

    size: int
    since_s: float
    #: Whether the job has had that many nodes. If it loses some then, the size that is left is tried.
    granted: bool = False


@dataclass(slots=True)
class Launch:
    """The last launch of a script of mode `restart`."""

    launched_s: float = 0.0
    #: Its members that have ended well.
    finished: tuple[Member, ...] = ()
    #: How it failed.
    failure: WorkerExited | None = None
    #: Whether its failure does not count: it lost a node, or was told to end.
    excused: bool = True


@dataclass(slots=True)
class DiskWait:
    """Workers that cannot write their files are started again until they can."""

    #: Why they cannot; empty: they can.
    reason: str = ""
    #: How often in a row they were started again, and when they are next.
    waits: int = 0
    again_s: float = 0.0


@dataclass(slots=True)
class JobState:
    job: Job
    phase: JobPhase
    submitted_s: float
    #: The nodes assigned to it, oldest first, whatever their workers do.
    nodes: dict[str, None] = field(default_factory=dict)
    #: How long nodes were assigned to it until `nodes_since_s`, when their number changed last: node-seconds. None:
    #: it has had none, or a snapshot of an older version does not say since when.
    past_node_s: float = 0.0
    nodes_since_s: float | None = None
    generation: int = 0
    members: tuple[Member, ...] = ()
    #: Members of newer generations than the last that formed, which are still to report.
    forming: dict[int, tuple[Member, ...]] = field(default_factory=dict)
    #: The members of the last generation that formed, except those known to have gone: they have the training's state.
    #: And members of newer ones that were told to leave before these were known to have formed: they may have it.
    state_holders: tuple[Member, ...] = ()
    formed_generation: int = 0
    #: Members of generations before this one have been told to abandon what is in flight there.
    abandoned_before: int = 0
    #: The first member of that generation, gone or not. It does what is done once, such as saving the model.
    first_member: Member | None = None
    size_since_s: float = 0.0
    failures: int = 0
    #: How often in a row its generation broke before it formed, without a death; and why it broke last.
    renewals: int = 0
    break_reason: str = ""
    #: Pairs of nodes of the newest generation whose members cannot connect to each other.
    unreachable: tuple[tuple[str, str], ...] = ()
    #: Mode `restart` only.
    launch: Launch | None = None
    #: The newest generation and the furthest stable step at which a failure was counted.
    failure_generation: int = -1
    failure_step: int = -1
    disk: DiskWait = field(default_factory=DiskWait)
    #: When the first of its ready workers began to wait for the others.
    joining_since_s: float | None = None
    resizes: int = 0
    probe: Probe | None = None
    #: When its first generation formed.
    trained_since_s: float | None = None
    ended_s: float | None = None
    reason: str = ""
    #: The exit code of its script, as a shell has it; None until it has ended.
    exit_code: int | None = None
    #: Whether it will have trained so soon that its successor may start.
    nears_end: bool = False
    progress: Progress = field(default_factory=Progress, compare=False)
    #: At least this many steps were done again because no member that had done them was left: what members did between
    #: their last report and their death is not known.
    redone_steps: int = 0

    def __post_init__(self) -> None:
        if self.restarts and self.launch is None:
            self.launch = Launch()

    def excuse_failure(self) -> None:
        """Do not count the failure of the present launch, which lost a node. Other modes have no launch."""
        if self.launch is not None:
            self.launch.excused = True

    def node_s(self, now_s: float) -> float:
        """Return for how long nodes were assigned to it, those that boot included, in node-seconds."""
        since_s = now_s if self.nodes_since_s is None else self.nodes_since_s
        return self.past_node_s + len(self.nodes) * max(0.0, now_s - since_s)

    def note_node_s(self, now_s: float) -> None:
        """Note the node-seconds until now: the number of its nodes changes."""
        self.past_node_s, self.nodes_since_s = self.node_s(now_s), now_s

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def restarts(self) -> bool:
        """Whether a resize ends its ranks and launches its script again (mode `restart`)."""
        return self.job.mode == "restart"

    @property
    def finish_limit_s(self) -> float:
        """How long its script may take to come to its end after its training."""
        job = self.job
        return job.hang_limit_s if job.finish_limit_s is None else job.finish_limit_s

    def resize_costs_s(self, settings: Settings) -> tuple[float, float]:
        """Return the seconds of progress that growing and shrinking cost: the job's own values, else its mode's."""
        job = self.job
        grow_s, shrink_s = settings.grow_cost_s, settings.shrink_cost_s
        if self.restarts:
            grow_s = shrink_s = settings.restart_cost_s
        return (
            grow_s if job.grow_cost_s is None else job.grow_cost_s,
            shrink_s if job.shrink_cost_s is None else job.shrink_cost_s,
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The last allocation that was carried out, kept for explanations."""

    time_s: float
    version: int
    problem: AllocationProblem
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Skipped:
    """An event that `step` could not answer: it changed nothing."""

    event_id: int
    time_s: float
    kind: str
    #: The job that the event was about; empty if it was about none.
    job: str
    reason: str


@dataclass(slots=True)
class State:
    settings: Settings = field(default_factory=Settings)
    #: Time of the newest event.
    now_s: float = 0.0
    #: How many journalled events have been answered; the number of the newest one.
    event_id: int = 0
    nodes: dict[str, NodeState] = field(default_factory=dict)
    #: In order of submission: jobs that live, and those that ended last.
    jobs: dict[str, JobState] = field(default_factory=dict)
    #: In order of submission.
    sweeps: dict[str, SweepState] = field(default_factory=dict)
    #: How many jobs and sweeps have been submitted: a job's id has its number, which is never given again.
    submitted: int = 0
    #: The jobs in `jobs` that have ended, the first to end first.
    ended: dict[str, None] = field(default_factory=dict)
    #: Jobs that have had a node and have not ended, in the order in which they started.
    started: dict[str, None] = field(default_factory=dict)
    #: Jobs that have never had a node and have not ended: the highest priority first, then by submission.
    queue: list[str] = field(default_factory=list)
    #: Nodes without a job, claimed or not.
    free: dict[str, None] = field(default_factory=dict)
    #: Version of the newest allocation problem.
    version: int = 0
    #: The newest problem that has no answer yet.
    open_problem: AllocationProblem | None = None
    decision: Decision | None = None
    #: How many answers in a row were greedy ones, because the solver did not answer in time.
    standin_answers: int = 0
    #: What has been learned of the jobs' scaling and resizes.
    histories: JobHistories = field(default_factory=JobHistories)
    incarnations: int = 0
    #: Incarnations that were started and that the journal has forgotten: (before the first, the last).
    forgotten_incarnations: list[tuple[int, int]] = field(default_factory=list)
    #: Timers that have not fired, with the time at which they do. They are set again after a restart.
    timers: dict[Timer, float] = field(default_factory=dict)
    #: False after a release of all nodes: nothing is claimed until it is undone.
    claiming: bool = True
    #: The lease on the shared directory was not renewed in time.
    lease_uncertain: bool = False
    #: The controller is ending: nothing is claimed until the next one starts.
    stopping: bool = False
    #: By node: the starts that failed there lately, since the last worker took its first step there.
    failed_starts: dict[str, list[FailedStart]] = field(default_factory=dict)
    #: Nodes that are not claimed for a while, and why.
    set_aside: dict[str, str] = field(default_factory=dict)
    #: The last events that could not be answered, oldest first.
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def may_claim(self) -> bool:
        """Whether nodes may be claimed at present, as far as the controller as a whole is concerned."""
        return self.claiming and not self.stopping and not self.lease_uncertain

    def stop_limit_s(self, job_id: str) -> float:
        """Return how long a worker of this job may take to end when it is told to, in seconds."""
        job = self.jobs.get(job_id)
        return job.job.restart_grace_s if job is not None and job.restarts else self.settings.stop_limit_s

    def replace_with(self, other: State) -> None:
        """Take over all fields of `other`, except the progress of jobs, which is newer here."""
        progress = {job_id: job.progress for job_id, job in self.jobs.items()}
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))
        for job_id, job in self.jobs.items():
            if job_id in progress:
                job.progress = progress[job_id]
