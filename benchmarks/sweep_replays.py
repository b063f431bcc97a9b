"""The replayed part of benchmarks/sweep.py: the same searches on the same windows, by several systems."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from offcut.model import Job, Sizes
from offcut.model.search_space import CategoricalParameter, SearchSpace
from offcut.model.sweep import ResultOrder, SchedulerChoice, Sweep
from offcut.simulate.imagenet_networks import NETWORKS
from offcut.simulate.options import ReplayOptions, ResizeCost, parse_cost
from offcut.simulate.sweep_replay import SweepMetrics, replay_sweep
from offcut.traces.learning_curves import LearningCurves, read_learning_curves
from offcut.traces.windows import Windows, node_names, read_windows

#: BFTrainer's measured restart of all processes of a job on Summit: what its papers charge for growing.
RESTART_S = 18.0
#: What offcut's own resize costs; see offcut.simulate.options.
OURS = ReplayOptions(cost=parse_cost("measured"))
#: Trials scale as ShuffleNet does in BFTrainer's measurements.
SCALING = next(network.curve for network in NETWORKS if network.name == "ShuffleNet")
SIZES = "1:8"
FIXED_SIZES = (1, 2, 4, 8)
PARALLEL = 32
#: A search that has not ended after this time is cut off.
LONGEST_S = 400_000.0


@dataclass(frozen=True, slots=True)
class Setting:
    """Nodes drawn at random from the trace's, and the mean seconds of a unit of budget on one node."""

    nodes: int
    unit_s: float


@dataclass(frozen=True, slots=True)
class System:
    """How trials are run, and by which rule they are compared."""

    name: str
    sizes: str
    options: ReplayOptions
    scheduler: str = "asha"
    order: ResultOrder = "arrival"


def systems(setting: Setting) -> list[System]:
    """Return the systems that are compared."""
    # Others start a trial when its nodes are free, and never take nodes from one that runs: first come, first served.
    # A checkpoint after each unit of budget takes no time.
    restart = ReplayOptions(
        cost=ResizeCost(grow_s=RESTART_S, shrink_s=RESTART_S), commit_s=setting.unit_s, policy="first-come"
    )
    return [
        System("offcut", SIZES, OURS),
        System("offcut, stop-only", SIZES, OURS, scheduler="asha-stopping"),
        System("offcut, order logical", SIZES, OURS, order="logical"),
        *(System(f"restart on {size}", str(size), restart) for size in FIXED_SIZES),
    ]


class Searches:
    """Replays searches over the configurations of a table.

    Args:
        windows: the trace.
        table: the learning curves. Their objective must be an error, which is 1 - accuracy.
    """

    def __init__(self, windows: Windows, table: LearningCurves) -> None:
        self._windows = windows
        curves = [replace(curve, parameters={"configuration": i}) for i, curve in enumerate(table.curves)]
        self._table = replace(table, curves=tuple(curves))
        #: The best value: an accuracy within 1 % of the best in the table.
        self.target = 1.0 - 0.99 * (1.0 - table.best_value)

    def sweep(self, system: System, seed: int, *, parallel: int = PARALLEL) -> Sweep:
        """Return the search: all configurations of the table, in an order that the seed draws."""
        order = list(range(len(self._table.curves)))
        random.Random(seed).shuffle(order)
        return Sweep(
            id="sweep",
            name="sweep",
            job=Job(id="sweep", name="sweep", command=("replay",), sizes=Sizes.parse(system.sizes), curve=SCALING),
            space=SearchSpace((CategoricalParameter(name="configuration", choices=tuple(order)),)),
            scheduler=SchedulerChoice(system.scheduler, (("max_budget", self._table.budgets[-1]),)),
            suggester="grid",
            order=system.order,
            parallel=parallel,
            max_trials=len(order),
        )

    def run(self, setting: Setting, system: System, seed: int, *, parallel: int = PARALLEL) -> SweepMetrics:
        """Replay one search on the windows of nodes, and from a time, that the seed draws."""
        first_s, last_s = self._windows.span_s
        start_s = random.Random(seed).uniform(first_s, last_s - LONGEST_S)
        return replay_sweep(
            self._windows.sample(setting.nodes, seed),
            self.sweep(system, seed, parallel=parallel),
            self._table.scaled(setting.unit_s),
            system.options,
            start_s=start_s,
            end_s=start_s + LONGEST_S,
        )

    def run_undisturbed(
        self, setting: Setting, system: System, seed: int, nodes: int, *, parallel: int
    ) -> SweepMetrics:
        """Replay the same search on nodes that are never wanted."""
        dedicated = Windows.from_columns(node_names(nodes), [0.0] * nodes, [LONGEST_S * 10] * nodes)
        sweep = self.sweep(system, seed, parallel=parallel)
        return replay_sweep(dedicated, sweep, self._table.scaled(setting.unit_s), system.options)


_searches: Searches


def _load(windows: Path, table: Path) -> None:
    """Read trace and table in a worker process."""
    global _searches  # noqa: PLW0603 - one per process
    _searches = Searches(read_windows(windows), read_learning_curves(table))


def _row(task: tuple[Setting, System, int]) -> dict[str, Any]:
    setting, system, seed = task
    metrics = _searches.run(setting, system, seed)
    hits = [step for step in metrics.best_over_time if step["value"] <= _searches.target]
    return {
        "nodes": setting.nodes,
        "unit_s": setting.unit_s,
        "system": system.name,
        "seed": seed,
        # A search that ended without it counts as infinitely long.
        "time_to_best_s": hits[0]["time_s"] if hits else math.inf,
        "node_h_to_best": hits[0]["node_h"] if hits else math.inf,
        "span_s": metrics.span_s,
        "node_h": metrics.node_h,
        "finished": metrics.phase == "finished",
        "reclaims": metrics.reclaims,
        "failed": metrics.failed,
        "redone_share": metrics.replay.shares.redone,
    }


def _equality(task: tuple[Setting, int]) -> dict[str, Any]:
    """Compare the log of suggestions and decisions with and without reclaims, with at most 16 trials at once."""
    setting, seed = task
    system = System("offcut, order logical", SIZES, OURS, order="logical")
    disturbed = _searches.run(setting, system, seed, parallel=16)
    undisturbed = _searches.run_undisturbed(setting, system, seed, 16, parallel=16)
    return {
        "nodes": setting.nodes,
        "unit_s": setting.unit_s,
        "seed": seed,
        "equal": [line["text"] for line in disturbed.log] == [line["text"] for line in undisturbed.log],
        "lines": len(disturbed.log),
        "reclaims": disturbed.reclaims,
        "reclaims_at_8_trials": sum(n for trials, n in disturbed.reclaims_by_trials.items() if trials >= 8),
        "failed": disturbed.failed + undisturbed.failed,
    }


def replay_all(
    windows: Path,
    table: Path,
    settings: Sequence[Setting],
    seeds: int,
    equal_seeds: int,
    processes: int,
    tell: Callable[[str], None],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Replay every system with every seed.

    Returns:
        A row for each replay, and one for each comparison of the logs with and without reclaims.
    """
    tasks = [(setting, system, seed) for setting in settings for seed in range(seeds) for system in systems(setting)]
    pairs = [(settings[0], seed) for seed in range(equal_seeds)]
    with ProcessPoolExecutor(processes, initializer=_load, initargs=(windows, table)) as pool:
        rows = list(_told(pool.map(_row, tasks, chunksize=4), len(tasks), "replays", tell))
        equal = list(_told(pool.map(_equality, pairs), len(pairs), "comparisons", tell))
    return rows, equal


def _told(
    rows: Iterator[dict[str, Any]], count: int, what: str, tell: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(rows, 1):
        if number % 50 == 0 or number == count:
            tell(f"{number} of {count} {what}")
        yield row
