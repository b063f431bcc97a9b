"""Reads from the environment what a worker knows of its job."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from offcut.torch.membership.agent_link import AgentLink
from offcut.torch.state.fault_points import FaultPoints
from offcut.torch.state.generation_mark import GenerationMark
from offcut.wire.worker_env import ENV_CHECKPOINT_AGE, ENV_JOB_DIR
from offcut.wire.worker_messages import WorkerNote


@dataclass(frozen=True, slots=True)
class JobContext:
    """The connection to the agent, and where the job keeps its checkpoints."""

    link: AgentLink
    #: Points at which tests let this worker fail.
    faults: FaultPoints
    #: The directory of the job's checkpoints, which all nodes see.
    checkpoints: Path
    #: How old the newest checkpoint may become.
    checkpoint_age_s: float
    #: Says whether the job has gone on without this member.
    mark: GenerationMark

    @classmethod
    def from_environment(cls, faults: FaultPoints) -> JobContext | None:
        """Connect to the agent that started this process; None in a script that runs without offcut.

        Raises:
            InputError: in a job of mode `restart`, whose script must not have a session.
        """
        link = AgentLink.from_environment()
        if link is None:
            return None
        age_s = float(os.environ.get(ENV_CHECKPOINT_AGE, "30"))
        directory = Path(os.environ[ENV_JOB_DIR])
        return cls(link, faults, directory / "checkpoints", age_s, GenerationMark(directory / "generation"))

    def note(self, text: str) -> None:
        """Tell the job's owner `text`; it is shown with the job."""
        self.link.send(WorkerNote(text=text))
