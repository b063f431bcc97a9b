"""What a job's training has really done, as seen from outside: every stable step once, in order, every sample once."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, eq=False)
class TrainingStep:
    """The state of a training after a step: the step before, the generation that did it, and its samples."""

    number: int
    generation: int
    samples: int
    before: TrainingStep | None = field(repr=False)

    @property
    def chain(self) -> int:
        """A number that two states have in common if all their steps are the same."""
        return self._chain

    _chain: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        before = 0 if self.before is None else self.before.chain
        object.__setattr__(self, "_chain", hash((before, self.number, self.generation, self.samples)))

    def back_to(self, number: int) -> TrainingStep | None:
        """Return the state after an earlier step; None for the beginning."""
        found: TrainingStep | None = self
        while found is not None and found.number > number:
            found = found.before
        return found


@dataclass(slots=True)
class JobLedger:
    """One job. `share` is what lies on the shared file system: checkpoints and the mark of the newest generation."""

    job: str
    batch: int
    goal_steps: int
    step_s: float
    stable: list[TrainingStep] = field(default_factory=list)
    #: Published checkpoints, by step.
    checkpoints: dict[int, TrainingStep | None] = field(default_factory=dict)
    mark: int = 0
    redone: int = 0
    #: The newest generation that began with a checkpoint: what members of older ones do from then on does not count.
    begun: int = 0
    #: The generation in which something happened to a worker that may cost the job its state; None: nothing has since.
    excused: int | None = None

    def note_stable(self, state: TrainingStep | None, who: str) -> list[str]:
        """Note that a member says all steps up to this one are stable. Return what is wrong with that."""
        if state is None:
            return []
        new = []
        step: TrainingStep | None = state
        while step is not None and step.number > len(self.stable):
            new.append(step)
            step = step.before
        if step is not None and self.stable[step.number - 1].chain != step.chain:
            other = self.stable[step.number - 1]
            return [
                f"Job {self.job}: {who} says that step {step.number} of generation {step.generation} is stable, but it "
                f"was stable in generation {other.generation}."
            ]
        wrong = []
        for each in reversed(new):
            if each.before is not None and each.generation < each.before.generation:
                wrong.append(f"Job {self.job}: step {each.number} is of an older generation than the step before it.")
            start = 0 if each.before is None else each.before.samples
            if each.samples != start + self.batch:
                wrong.append(f"Job {self.job}: step {each.number} did not train on the {self.batch} next samples.")
            self.stable.append(each)
            if self.excused is not None and each.generation > self.excused:
                self.excused = None
        return wrong

    def go_back(self, state: TrainingStep | None) -> int:
        """Note that the training goes on from this state. Return how many stable steps are done again."""
        number = 0 if state is None else state.number
        lost = max(0, len(self.stable) - number)
        del self.stable[number:]
        self.redone += lost
        return lost

    def publish(self, state: TrainingStep | None) -> None:
        """Publish a checkpoint; the newest two are kept."""
        self.checkpoints[0 if state is None else state.number] = state
        for old in sorted(self.checkpoints)[:-2]:
            del self.checkpoints[old]

    def newest_checkpoint(self) -> TrainingStep | None:
        return self.checkpoints[max(self.checkpoints)] if self.checkpoints else None
