"""Plans on real processes: the gradients of a single process, and failures that do not hang the peers."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

# The runner for plans outside a job is a peer in the benchmarks; here it runs the engine that jobs run, too.
sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))

from pipeline_peers.local_processes import outcomes, run_local

WORKERS = Path(__file__).with_name("plan_workers.py")
_spec = importlib.util.spec_from_file_location("plan_workers", WORKERS)
assert _spec is not None
assert _spec.loader is not None
workers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(workers)
make_plan = workers.make_plan

UNEVEN, EACH = (0, 1, 2, 4, 8), tuple(range(9))
FOUR = (1, 1, 1, 1)


def test_every_schedule_has_the_gradients_of_a_single_process() -> None:
    """Uneven stages, every schedule and engine, replicas even and uneven, skips through every cut: within 1e-6."""
    cases = {
        f"{schedule} {engine}": ("sequential", make_plan(schedule, UNEVEN, FOUR), engine)
        for schedule in ("gpipe", "1f1b", "1f1b-so", "1f1b-link")
        for engine in ("native", "own")
    }
    cases |= {
        "zero bubble": ("sequential", make_plan("zb-h1", UNEVEN, FOUR), "native"),
        "zero bubble, own": ("sequential", make_plan("zb-h1", UNEVEN, FOUR), "own"),
        "zero bubble, own, skips": ("skips", make_plan("zb-h1", UNEVEN, FOUR), "own"),
        "meeting 1f1b": ("sequential", make_plan("1f1b-sno", UNEVEN, FOUR, overlap=False), "native"),
        "meeting gpipe": ("sequential", make_plan("gpipe", UNEVEN, FOUR, overlap=False), "native"),
        "interleaved": ("sequential", make_plan("interleaved", EACH, FOUR), "native"),
        "zero bubble V, own": ("sequential", make_plan("zb-v", EACH, FOUR), "own"),
        "V-Half, own, skips": ("skips", make_plan("v-half", EACH, FOUR), "own"),
        "DualPipeV, own": ("sequential", make_plan("dualpipe-v", EACH, FOUR), "own"),
        "2 x 2 native": ("sequential", make_plan("1f1b-link", (0, 3, 8), (2, 2)), "native"),
        "2 x 2 own": ("sequential", make_plan("1f1b-link", (0, 3, 8), (2, 2)), "own"),
        "3-1": ("sequential", make_plan("1f1b", (0, 3, 8), (3, 1)), "auto"),
        "1-2-1": ("sequential", make_plan("1f1b-so", (0, 3, 5, 8), (1, 2, 1)), "auto"),
        "data parallel": ("sequential", make_plan("1f1b", (0, 8), (4,)), "auto"),
        "data parallel, 5 micro-batches": ("sequential", make_plan("1f1b", (0, 8), (4,), batch=10), "auto"),
        "2 x 2, 5 micro-batches": ("sequential", make_plan("1f1b", (0, 3, 8), (2, 2), batch=10), "native"),
        "chimera": ("sequential", make_plan("chimera", UNEVEN, FOUR), "auto"),
        "skips, native": ("skips", make_plan("1f1b-link", UNEVEN, FOUR), "native"),
        "skips, own": ("skips", make_plan("1f1b-link", UNEVEN, FOUR), "own"),
        "skips, interleaved": ("skips", make_plan("interleaved", EACH, FOUR), "native"),
    }
    for found in run_local(f"{WORKERS}:compare", 4, cases, timeout_s=250):
        for name, (error, parameters) in found.items():
            assert error <= 1e-6, name
            assert parameters > 0, name


@pytest.mark.parametrize("engine", ["native", "own"])
def test_a_rank_that_fails_does_not_hang_its_peers(engine: str) -> None:
    """Rank 1 raises in the middle of a step and lives on; rank 0 fails with it, long before any time limit."""
    said = run_local(f"{WORKERS}:breaks", 2, (make_plan("1f1b", (0, 4, 8), (1, 1)), engine), timeout_s=200)
    for words in said:
        assert words != "no failure"
        assert float(words.split()[0]) < 60.0


def test_a_batch_of_another_size_is_refused_on_every_rank() -> None:
    said = run_local(f"{WORKERS}:wrong_batch", 2, make_plan("1f1b", (0, 4, 8), (1, 1)), timeout_s=200)
    assert all("the batch has 15 samples" in words for words in said)


def test_a_wrong_group_size_is_refused() -> None:
    results = outcomes(f"{WORKERS}:wrong_batch", 2, make_plan("1f1b", (0, 1, 4, 8), (1, 1, 1)), timeout_s=200)
    assert all(not ok and "the plan is for 3 devices, the process group has 2 ranks" in why for ok, why in results)
