"""Runs one seed: its world, its actions and its checks, until enough has happened or an invariant does not hold."""

from __future__ import annotations

import gc
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from offcut.testing.campaign.actions import CALM_S, STORM_S, Action, actions
from offcut.testing.campaign.injection import Injector
from offcut.testing.campaign.world import World

#: A seed is this many events at least.
LEAST_EVENTS = 10_000
#: A job that has nodes in the calm must get on within this.
_GET_ON_S = 60.0


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What happened in the world of one seed."""

    seed: int
    events: int
    faults: Counter[str]
    kinds: Counter[str]
    violations: list[str]
    digest: str
    simulated_s: float
    actions: list[Action] = field(repr=False)
    story: list[str] = field(repr=False)


def run_seed(
    seed: int,
    *,
    events: int = LEAST_EVENTS,
    only: Collection[int] | None = None,
    until_s: float = 1e9,
    verbose: bool = False,
) -> SeedResult:
    """Run the world of a seed.

    Args:
        seed: decides everything.
        events: ends the run after at least this many.
        only: the numbers of the actions that are carried out; None: all.
        until_s: ends the run at this simulated time.
        verbose: keep the whole story, not only its end.
    """
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), cache_logger_on_first_use=False)
    # The agents' waits before they dial again come out of the module's own random numbers.
    random.seed(seed)
    with tempfile.TemporaryDirectory(dir=_memory_file_system()) as where:
        world = World(seed, Path(where) / "state", verbose=verbose)
        collects = gc.isenabled()
        gc.disable()  # a seed is short, and its processes stay referenced to its end
        try:
            done = _run(world, events, only, until_s)
        finally:
            world.loop.close()
            if collects:
                gc.enable()
        result = SeedResult(
            seed,
            world.trace.events,
            world.trace.faults,
            world.trace.kinds,
            world.violations,
            world.trace.digest,
            world.loop.time(),
            done,
            world.trace.story(1_000_000 if verbose else 400),
        )
        del world
        with _muted():
            gc.collect()
    return result


@contextmanager
def _muted() -> Iterator[None]:
    """Say nothing about coroutines of killed processes, whose `finally` runs only now."""
    shown, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook = shown


def _memory_file_system() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _run(world: World, events: int, only: Collection[int] | None, until_s: float) -> list[Action]:
    """Let everything happen. Return the actions that were carried out."""
    injector = Injector(world)
    world.start_controller()
    done: list[Action] = []
    calm_s = STORM_S
    injector.calm_s = calm_s

    def stop() -> bool:
        if world.loop.errors:
            world.violation(world.loop.errors[0])
        return bool(world.violations)

    for action in actions(world.seed):
        while action.at_s > calm_s and not stop():
            # The storm is over. What it has broken has a while to mend; then every job must get on.
            world.loop.run_until(calm_s + CALM_S - _GET_ON_S, stop)
            world.invariants.begin_calm()
            world.loop.run_until(calm_s + CALM_S, stop)
            if not stop():
                world.invariants.check_progress()
                world.invariants.check_growth()
            if world.trace.events >= events:
                return done
            calm_s += STORM_S + CALM_S
            injector.calm_s = calm_s
        world.loop.run_until(min(until_s, action.at_s), stop)
        if stop() or world.loop.time() >= until_s:
            return done
        if only is None or action.number in only:
            injector.apply(action)
            done.append(action)
    return done
