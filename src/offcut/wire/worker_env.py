"""The environment variables through which agents and workers are told who and where they are."""

from __future__ import annotations

#: The environment of an agent: what it adds to that of its workers, as JSON.
ENV_WORKER_ENV = "OFFCUT_WORKER_ENV"
#: The environment of a worker: its agent's socket, its name, and its job's directory.
ENV_AGENT = "OFFCUT_AGENT"
ENV_WORKER = "OFFCUT_WORKER"
ENV_JOB = "OFFCUT_JOB"
ENV_JOB_DIR = "OFFCUT_JOB_DIR"
#: Marks one job's workers on one node, from start to exit; processes that they start inherit it.
ENV_WORKERS_MARK = "OFFCUT_WORKERS_MARK"
ENV_GOAL = "OFFCUT_GOAL_SAMPLES"
ENV_CHECKPOINT_AGE = "OFFCUT_CHECKPOINT_AGE_S"
ENV_RECORDS = "OFFCUT_STEP_RECORDS"
#: torch asks for huge pages if the kernel gives them on request: a joiner has its state some 4 times as fast, because
#: most of the time goes into touching memory for the first time. Read at a process's first large allocation.
HUGE_PAGES = ("THP_MEM_ALLOC_ENABLE", "1")
#: Gloo's own: the interface that it uses, or several, separated by commas. Without it gloo takes the address to which
#: the host's own name resolves, on Debian 127.0.1.1.
ENV_GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
#: The plan file of a pipeline job.
ENV_PLANS = "OFFCUT_PLANS"
#: The parameters of a trial of a sweep, as JSON, and the cumulative budget of a whole trial.
ENV_PARAMETERS = "OFFCUT_PARAMETERS"
ENV_MAX_BUDGET = "OFFCUT_MAX_BUDGET"
#: Set in a process that loads a script of trials: nothing can be trained there.
ENV_LOADING = "OFFCUT_LOADING"
#: The file in a trial's directory to which its script appends what it reports.
OBJECTIVES_FILE = "objectives.jsonl"
#: The file beside a trial's checkpoints that has the step of the one which was copied from another trial.
COPIED_STEP_FILE = "copied-step"


def worker_name(node: str, incarnation: int, local_rank: int) -> str:
    """Return the name of one rank's process, unique over the life of a controller."""
    return f"{node}#{incarnation}:{local_rank}"
