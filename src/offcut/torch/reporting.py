"""Reports a training to the agent and to the step records."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from offcut.torch.membership.agent_link import AgentLink
from offcut.torch.membership.process_group import Group
from offcut.torch.membership.step_timing import StepTiming
from offcut.torch.state.training_state import TrainingState
from offcut.wire.step_records import StepRecords
from offcut.wire.worker_env import ENV_JOB_DIR, ENV_RECORDS
from offcut.wire.worker_messages import WorkerFinished, WorkerFormed, WorkerNote


class Reporter:
    """Reports stable steps only. Without an agent it writes records at most.

    Args:
        link: the connection to the agent; None in a script that runs without offcut.
        state: the training.
        timing: how long this member itself works.
        fingerprint: returns the training's fingerprint for the data of a batch.
        left: returns the steps and samples that the training has left; None: not known.
    """

    def __init__(
        self,
        link: AgentLink | None,
        state: TrainingState,
        timing: StepTiming,
        fingerprint: Callable[[Any], str],
        left: Callable[[Group], tuple[int, int] | None],
    ) -> None:
        self._link = link
        self._left = left
        self._state = state
        self._timing = timing
        self._fingerprint = fingerprint
        #: The fingerprint of the first batch.
        self._hash = ""
        self._records: StepRecords | None = None
        if os.environ.get(ENV_RECORDS):
            worker = link.worker if link is not None else "alone"
            self._records = StepRecords(Path(os.environ[ENV_JOB_DIR]) / "records", worker)
        #: The last step that no failure can undo any more, its samples, and since when that is known.
        self.stable_step = 0
        self._stable_samples = 0
        self._stable_clock_s = 0.0
        #: The last generation that was reported to the agent as training.
        self._announced = -1

    def note_stable(self) -> None:
        """Note that every member has applied the last step of the state."""
        self.stable_step, self._stable_samples = self._state.step, self._state.samples
        self._stable_clock_s = time.monotonic()

    def script_runs(self, runs: bool) -> None:
        """Note whether the script runs, or its session: the agent ends a script that runs for too long."""
        if self._link is not None:
            self._link.script_since_s = time.monotonic() if runs else None

    def step_begun(self, group: Group, samples: torch.Tensor) -> None:
        """Record what this member works on in the next step.

        Args:
            group: the members of the generation.
            samples: positions in the dataset, int64 [n].
        """
        if self._records is not None:
            self._records.contribute(
                step=self._state.step + 1,
                generation=group.membership.generation,
                epoch=self._state.cursor.epoch,
                samples=samples.tolist(),
            )

    def step_applied(self, group: Group, data: Any) -> None:
        """Record the step that was applied, and let the next heartbeat tell how far the training is.

        Args:
            group: the members that have applied it.
            data: the last batch, for the fingerprint.
        """
        if self._records is not None:
            self._records.applied(step=self._state.step, generation=group.membership.generation, loss=self._state.loss)
        if self._link is not None:
            self._report(self._link, group, data)

    def finished(self, group: Group, data: Any) -> None:
        """Tell the agent that the training has come to its end.

        Args:
            group: the members that have done the last step.
            data: the last batch, for the fingerprint.
        """
        link = self._link
        if link is None:
            return
        self._report(link, group, data)
        link.beat_now()
        generation = group.membership.generation
        link.send(WorkerFinished(generation=generation, step=self._state.step, first=group.rank == 0))

    def _report(self, link: AgentLink, group: Group, data: Any) -> None:
        generation, left = group.membership.generation, self._left(group)
        link.progress(
            generation=generation,
            step=self.stable_step,
            samples=self._stable_samples,
            clock_s=self._stable_clock_s,
            own_s=self._timing.own_s,
            loss=self._state.loss,
            total_steps=None if left is None else self._state.step + left[0],
            total_samples=None if left is None else self._state.samples + left[1],
            first=group.rank == 0,
        )
        if self._announced == generation:
            return
        self._announced = generation
        if group.rank == 0:
            self._hash = self._hash or self._fingerprint(data)
            link.send(WorkerFormed(generation=generation, step=self._state.step, fingerprint=self._hash))

    def failed(self, error: Exception, rank: int) -> None:
        """Tell the job's owner, on the first member, why the script's session ends.

        Args:
            error: what ended it.
            rank: this member's rank.
        """
        if self._link is not None and rank == 0:
            self._link.send(WorkerNote(text=str(error)))
