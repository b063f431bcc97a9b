"""The numbered membership of a job, as its members see it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a job: the workers' names in rank order, and how they find each other."""

    generation: int
    workers: tuple[str, ...]
    store: str
    job: str
    #: Members of the previous generation that are still alive but not in this one write down what only they hold.
    departing: bool = False
    #: What the members show to the rendezvous store.
    secret: str = field(default="", repr=False)
    #: Which process group of the generation: "" for all of its members, otherwise a name for some of them.
    group: str = ""

    @property
    def world(self) -> int:
        """How many members the generation has."""
        return len(self.workers)
