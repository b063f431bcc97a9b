"""What a simulated member tells the others, and what it reaches outside of its process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from offcut.membership.generation import Generation
from offcut.testing.campaign.collectives import Group
from offcut.testing.campaign.ledger import JobLedger, TrainingStep


class LeftError(Exception):
    """The worker leaves its job: its script ends."""


@dataclass(frozen=True, slots=True)
class Flags:
    """What members tell each other with every step."""

    switch: bool
    save: bool
    leaving: bool


class Surroundings(Protocol):
    """What a member reaches outside of its process."""

    def group(self, generation: Generation, rank: int) -> Group: ...

    def begins(self, ledger: JobLedger, worker: str, state: TrainingStep | None) -> None:
        """Note that the members begin with this state, out of a checkpoint, because none of them has one."""
        ...

    def stable(self, ledger: JobLedger, worker: str, state: TrainingStep | None) -> None: ...

    def exit(self, code: int) -> None:
        """End this process. Nothing that follows is executed."""
        ...
