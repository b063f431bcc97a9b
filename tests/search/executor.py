"""An executor of trials under a virtual clock: nodes are reclaimed at random, and it may lose its memory at any event.

It does what a controller does with the effects of a search: a trial trains while it has a node, reports at every unit
of budget, and goes on from its state wherever it gets a node again.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from offcut.model import Job, Sizes
from offcut.model.search_space import CategoricalParameter, FloatParameter, ParameterValues, SearchSpace
from offcut.model.sweep import SchedulerChoice, Sweep
from offcut.search import SearchState, begin, reissue, step
from offcut.search import events as ev
from offcut.search.suggestion import suggest_random

SPACE = SearchSpace(
    (FloatParameter(name="lr", low=1e-4, high=1.0, log=True), CategoricalParameter(name="depth", choices=(1, 2, 4)))
)

#: By trial: the parameters of the script's legs, with the budget at which each began.
Path = tuple[tuple[float, float], ...]


#: Every scheduler, with options for a short search.
SCHEDULERS: dict[str, dict[str, float]] = {
    "asha": {"max_budget": 27.0},
    "asha-stopping": {"max_budget": 27.0},
    "hyperband": {"max_budget": 9.0},
    "median-stopping": {"max_budget": 9.0},
    "pbt": {"max_budget": 20.0, "interval": 2.0, "population": 8},
    "regularized-evolution": {"max_budget": 4.0, "population": 10, "sample_size": 3},
    "none": {"max_budget": 6.0},
}


def suggested_by_results(state: SearchState, number: int) -> ParameterValues:
    """Return parameters that depend on all results that were decided upon, as a model-based suggester's do."""
    best = min((trial.value for trial in state.trials.values() if trial.results), default=0.0)
    return suggest_random(state.sweep.space, hash(best) % 1000, number)


def sweep_of(scheduler: str, *, space: SearchSpace = SPACE, **options: object) -> Sweep:
    """Return a sweep; options of `Sweep` go there, the others to the scheduler."""
    own = {name: options.pop(name) for name in list(options) if name in Sweep.__slots__}
    job = Job(id="s", name="s", command=("train.py",), sizes=Sizes.parse("1"))
    return Sweep(
        id="s", name="s", job=job, space=space, scheduler=SchedulerChoice(scheduler, tuple(options.items())), **own
    )


def path_loss(path: Path, budget: float) -> float:
    """Return the loss after `budget`, of a state that was trained with these learning rates since these budgets."""
    total = 0.0
    for place, (since, lr) in enumerate(path):
        until = path[place + 1][0] if place + 1 < len(path) else budget
        total += (until - since) * (1.0 - 0.3 * abs(math.log10(lr) + 1.5))
    return 10.0 - total


@dataclass
class Script:
    """The training of one trial."""

    path: Path
    leg: int = 0
    budget: float = 0.0
    paused: bool = False
    node: bool = False
    #: The states that it has saved at whole budgets, for copies.
    saved: dict[float, Path] = field(default_factory=dict)
    failed: bool = False


@dataclass
class Executor:
    """Runs the trials of one sweep on some nodes.

    Args:
        sweep: the sweep.
        nodes: how many nodes there are; a trial takes one.
        seed: of reclaims and of how long a unit of budget takes.
        reclaim: the probability that a node is reclaimed in a tick.
        fails: whether the script of a trial with this number fails, and at which budget.
        answer: the suggester, for sweeps that ask.
    """

    sweep: Sweep
    nodes: int = 8
    seed: int = 0
    reclaim: float = 0.0
    fails: Callable[[int], float | None] = lambda number: None
    answer: Callable[[SearchState, int], ParameterValues] | None = None
    epochs: float = math.inf
    loss: Callable[[int, Path, float], float] = lambda number, path, budget: path_loss(path, budget)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.scripts: dict[int, Script] = {}
        self.journal: list[ev.SearchEvent] = []
        self.log: list[ev.LogDecision] = []
        self.started: list[int] = []
        self.reclaims = 0
        self.most_running = 0
        self.asked: list[int] = []
        self.state, effects = begin(self.sweep, self.nodes)
        self.carry_out(effects)

    def tell(self, event: ev.SearchEvent) -> None:
        """Journal an event, answer it and carry out what follows."""
        self.journal.append(event)
        self.carry_out(step(self.state, event))

    def folded(self) -> SearchState:
        """Return the state that the journal gives."""
        state, _ = begin(self.sweep, self.nodes)
        for event in self.journal:
            step(state, event)
        return state

    def restart(self) -> None:
        """Lose the state, and go on from the journal."""
        before = copy.deepcopy(self.state)
        self.state = self.folded()
        assert self.state == before
        self.asked = []
        self.carry_out(reissue(self.state))

    def carry_out(self, effects: list[ev.SearchEffect]) -> None:
        for effect in effects:
            match effect:
                case ev.LogDecision():
                    self.log.append(effect)
                case ev.AskParameters():
                    self.asked.append(effect.trial)
                case ev.StartTrial():
                    assert effect.trial not in self.scripts, "a trial was started twice"
                    self.started.append(effect.trial)
                    self.scripts[effect.trial] = Script(((0.0, effect.parameters.get("lr", 0.1)),))
                case ev.HaltTrial():
                    assert not self.scripts[effect.trial].paused
                    self.scripts[effect.trial].paused = True
                case ev.ResumeTrial():
                    assert self.scripts[effect.trial].paused
                    self.scripts[effect.trial].paused = False
                case ev.StopTrial():
                    del self.scripts[effect.trial]
                case ev.CopyState():
                    source = self.scripts[effect.source]
                    path = source.saved[effect.source_budget]
                    lr = effect.parameters.get("lr", 0.1)
                    self.scripts[effect.trial] = Script(
                        (*path, (effect.source_budget, lr)), effect.leg, effect.source_budget, saved=dict(source.saved)
                    )
        for script in self.scripts.values():
            script.node = script.node and not script.paused

    def tick(self) -> None:
        """Give free nodes to trials, reclaim some, train the others a little."""
        if self.asked and self.answer is not None and self.random.random() < 0.5:
            number = self.asked.pop(0)
            self.tell(ev.ParametersSuggested(number, self.answer(self.state, number)))
        for script in self.scripts.values():
            if script.node and self.random.random() < self.reclaim:
                script.node = False
                self.reclaims += 1
        waiting = [script for script in self.scripts.values() if not script.paused and not script.node]
        self.random.shuffle(waiting)
        for script in waiting[: max(0, self.nodes - sum(script.node for script in self.scripts.values()))]:
            script.node = True
        running = [number for number, script in self.scripts.items() if script.node]
        self.most_running = max(self.most_running, len(running))
        for number in running:
            script = self.scripts.get(number)
            if script is not None and script.node and self.random.random() < 0.5:
                self._train(number, script)

    def _train(self, number: int, script: Script) -> None:
        failing = self.fails(number)
        if failing is not None and script.budget >= failing:
            del self.scripts[number]
            self.tell(ev.TrialEnded(number, True, "ValueError: bad", script.leg))
            return
        if script.budget >= min(self.epochs, self._max_budget()):
            del self.scripts[number]
            self.tell(ev.TrialEnded(number, False, leg=script.leg))
            return
        script.budget += 1.0
        script.saved[script.budget] = script.path
        self.tell(ev.TrialReported(number, script.budget, self.loss(number, script.path, script.budget), script.leg))

    def _max_budget(self) -> float:
        return dict(self.sweep.scheduler.options)["max_budget"]

    def run(self, ticks: int = 20_000) -> Executor:
        """Run until the sweep has ended and all its scripts have."""
        for _ in range(ticks):
            if self.state.phase not in ("running", "paused") and not any(
                not script.paused for script in self.scripts.values()
            ):
                return self
            self.tick()
        raise AssertionError(f"the sweep did not end: {self.state.phase}, {self.state.active()}")

    def decisions(self) -> list[tuple[int | None, str]]:
        """Return the log of all suggestions and decisions."""
        return [(line.trial, line.text) for line in self.log if "failed: ValueError" not in line.text]
