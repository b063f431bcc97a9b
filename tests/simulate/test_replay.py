"""Replays whose outcome can be worked out by hand, and properties of all replays."""

from __future__ import annotations

from dataclasses import astuple, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offcut.errors import InputError
from offcut.model import Window
from offcut.simulate.options import ReplayOptions, ResizeCost, parse_cost
from offcut.simulate.parallel_replays import replay_each
from offcut.simulate.replay import replay
from offcut.traces.windows import Windows

EXACT = ReplayOptions(horizon_s=120.0)


def windows(*rows: tuple[str, float, float]) -> Windows:
    return Windows.from_windows([Window(*row) for row in rows])


def hours(work_s: float) -> float:
    return work_s / 3600


class TestByHand:
    def test_a_start_costs_a_grow(self, make_job):
        m = replay(windows(("n1", 0, 100)), [make_job()], EXACT)
        assert m.work_node_h == pytest.approx(hours(90))
        assert m.shares.grow_stall == pytest.approx(0.1)
        assert m.uf == pytest.approx(0.9)
        assert m.reclaims == 0

    def test_two_nodes_make_one_generation(self, make_job):
        m = replay(windows(("n1", 0, 100), ("n2", 0, 100)), [make_job()], EXACT)
        assert m.work_node_h == pytest.approx(hours(90 * 1.9))
        assert m.resizes == 1
        assert m.shares.scaling == pytest.approx(0.05)

    def test_a_reclaim_costs_a_shrink(self, make_job):
        m = replay(windows(("n1", 0, 100), ("n2", 0, 50)), [make_job()], EXACT)
        assert m.work_node_h == pytest.approx(hours(40 * 1.9 + 46))
        assert m.fluid_losses["reclaim_stall"] == pytest.approx(4 / (50 * 1.9 + 50))

    def test_a_late_node_is_not_claimed_if_growing_does_not_pay(self, make_job):
        # Growing from 8 x 0.9 to more is worth nothing within a horizon that the stall eats up.
        rows = windows(("n1", 0, 1000), ("n2", 500, 1000))
        stays = replay(rows, [make_job(grow_s=100.0)], replace(EXACT, horizon_s=120.0))
        grows = replay(rows, [make_job(grow_s=100.0)], replace(EXACT, horizon_s=1000.0))
        assert stays.work_node_h == pytest.approx(hours(900))
        assert grows.work_node_h == pytest.approx(hours(400 + 400 * 1.9))

    def test_a_node_boots_off_the_path(self, make_job):
        options = replace(EXACT, cost=ResizeCost(grow_s=0.0, shrink_s=0.0, boot_s=20.0, start_s=5.0))
        m = replay(windows(("n1", 0, 200), ("n2", 100, 200)), [make_job()], options)
        # The first node is of use from 25 s, the second from 125 s; until then the first trains alone.
        assert m.work_node_h == pytest.approx(hours(100 + 75 * 1.9))
        assert m.shares.boot == pytest.approx((25 + 25 * 0.9) / 300)

    def test_published_accounting_charges_the_old_rate(self, make_job):
        m = replay(windows(("n1", 0, 200), ("n2", 100, 200)), [make_job()], replace(EXACT, accounting="published"))
        # Starting is free; growing from 1 node costs 10 s at the rate of 1.
        assert m.work_node_h == pytest.approx(hours(100 + 100 * 1.9 - 10))

    def test_work_since_the_last_commit_is_lost_with_the_last_node(self, make_job):
        rows = windows(("n1", 0, 100), ("n1", 200, 300))
        kept = replay(rows, [make_job(grow_s=0.0)], EXACT)
        lost = replay(rows, [make_job(grow_s=0.0)], replace(EXACT, commit_s=30.0))
        assert kept.work_node_h == pytest.approx(hours(200))
        assert lost.work_node_h == pytest.approx(hours(190))
        assert lost.shares.redone == pytest.approx(10 / 200)
        assert lost.last_node_reclaims == 1

    def test_a_job_ends_and_the_next_one_follows(self, make_job):
        jobs = [make_job("a", samples=3000.0), make_job("b", samples=3000.0)]
        m = replay(windows(("n1", 0, 1000)), jobs, replace(EXACT, concurrency=1))
        assert m.jobs_finished == 2
        assert m.turnaround_mean_s == pytest.approx((40 + 80) / 2)
        assert m.wait_mean_s == pytest.approx(20)

    def test_a_successor_boots_before_the_last_job_has_ended(self, make_job):
        jobs = [make_job(name, samples=10_000.0, largest=1) for name in ("a", "b")]
        cost = ResizeCost(grow_s=0.0, shrink_s=0.0, boot_s=20.0, start_s=5.0)
        m = replay(windows(("n1", 0, 1000), ("n2", 0, 1000)), jobs, replace(EXACT, concurrency=1, cost=cost))
        # The first trains from 25 s to 125 s; the second is let in at 100 s and goes on where the first ends.
        assert m.turnaround_mean_s == pytest.approx((125 + 225) / 2)

    def test_jobs_start_when_they_are_submitted(self, make_job):
        m = replay(windows(("n1", 0, 1000)), [make_job(samples=1000.0, submit_s=500.0)], EXACT, start_s=0.0)
        assert m.work_node_h == pytest.approx(hours(10))
        assert m.shares.no_job == pytest.approx(0.5 + 0.48)

    def test_a_static_machine_reaches_its_own_upper_bounds(self, make_job):
        rows = windows(*((f"n{i}", 0, 10_000) for i in range(4)))
        free = replace(EXACT, cost=parse_cost("0"), concurrency=2, repeat=True)
        m = replay(rows, [make_job("a", samples=2e4), make_job("b", samples=3e4)], free)
        assert m.us == pytest.approx(1.0)
        assert m.uf == pytest.approx(1.0)


class TestAnyReplay:
    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        concurrency=st.sampled_from([None, 1, 3, 10]),
        cost=st.sampled_from(["0", "1", "18:12", "measured", "published"]),
        horizon_s=st.sampled_from([10.0, 120.0]),
        accounting=st.sampled_from(["stall", "published"]),
        commit_s=st.sampled_from([0.0, 30.0]),
        repeat=st.booleans(),
    )
    def test_the_shares_add_up_and_the_bounds_hold(
        self, busy_windows, make_job, concurrency, cost, horizon_s, accounting, commit_s, repeat
    ):
        options = ReplayOptions(
            concurrency=concurrency,
            cost=parse_cost(cost),
            horizon_s=horizon_s,
            accounting=accounting,
            commit_s=commit_s,
            repeat=repeat,
        )
        jobs = [make_job(str(i), samples=1e5 * (i + 1), submit_s=300.0 * i) for i in range(6)]
        m = replay(busy_windows, jobs, options, start_s=0.0, end_s=8 * 3600.0, compare=False)
        assert sum(astuple(m.shares)) == pytest.approx(1.0)
        assert 0 <= m.work_node_h <= m.fluid_node_h * (1 + 1e-9)
        assert m.fluid_node_h <= m.idle_node_h * (1 + 1e-9)
        assert m.used_node_h <= m.idle_node_h * (1 + 1e-12)
        assert min(astuple(m.shares)) > -1e-9
        idle = busy_windows.between(0.0, 8 * 3600.0)
        assert m.idle_node_h == pytest.approx(idle.length_s.sum() / 3600)
        assert m.last_node_reclaims <= m.reclaims <= m.resizes + m.last_node_reclaims
        if not repeat:
            assert m.jobs_submitted == 6

    def test_equal_replays_are_equal_in_any_process(self, busy_windows, make_job):
        jobs = [make_job("a"), make_job("b")]
        options = [EXACT, EXACT, replace(EXACT, policy="equal-share")]
        alone = replay_each(busy_windows, jobs, options, end_s=4 * 3600.0, processes=1)
        together = replay_each(busy_windows, jobs, options, end_s=4 * 3600.0, processes=2)
        assert [replace(m, cpu_s=0.0, events_per_s=0.0) for m in alone] == [
            replace(m, cpu_s=0.0, events_per_s=0.0) for m in together
        ]

    def test_exact_beats_equal_share(self, busy_windows, make_job):
        jobs = [make_job(str(i), samples=1e12) for i in range(5)]
        costs = [replace(EXACT, policy=name, cost=parse_cost("18:12")) for name in ("exact", "equal-share")]
        exact, equal = replay_each(busy_windows, jobs, costs, processes=1, compare=False)
        assert exact.work_node_h > equal.work_node_h

    def test_cohorts_save_resizes(self, busy_windows, make_job):
        jobs = [make_job(str(i), samples=1e12) for i in range(3)]
        pair = [replace(EXACT, placement=name) for name in ("together", "random")]
        together, random = replay_each(busy_windows, jobs, pair, processes=1, compare=False)
        assert together.resizes < random.resizes

    def test_the_concurrency_limit_keeps_that_many_jobs(self, busy_windows, make_job):
        jobs = [make_job(str(i), samples=1e12) for i in range(9)]
        m = replay(busy_windows, jobs, replace(EXACT, concurrency=3), end_s=4 * 3600.0, compare=False)
        assert m.jobs_started == 3

    def test_without_a_concurrency_limit_the_controller_admits_jobs_that_pay(self, busy_windows, make_job):
        jobs = [make_job(str(i), samples=1e12) for i in range(40)]
        capped = replay(busy_windows, jobs, replace(EXACT, concurrency=3), end_s=4 * 3600.0, compare=False)
        free = replay(busy_windows, jobs, EXACT, end_s=4 * 3600.0, compare=False)
        assert free.jobs_started > 3
        assert free.work_share > capped.work_share


class TestBadInput:
    def test_an_interval_without_windows_is_refused(self, make_job):
        with pytest.raises(InputError, match="no node is idle"):
            replay(windows(("n1", 0, 10), ("n1", 90, 100)), [make_job()], EXACT, start_s=20.0, end_s=30.0)

    def test_an_empty_interval_is_refused(self, make_job):
        with pytest.raises(InputError, match=" s is empty"):
            replay(windows(("n1", 0, 10)), [make_job()], EXACT, start_s=9.0, end_s=3.0)

    @pytest.mark.parametrize("text", ["", "fast", "1:2:3", "-1", "nan", "1:x"])
    def test_invalid_resize_costs_are_refused(self, text):
        with pytest.raises(InputError, match="--resize-cost"):
            parse_cost(text)

    def test_invalid_options_are_refused(self):
        with pytest.raises(InputError, match="--concurrency"):
            ReplayOptions(concurrency=0)
        with pytest.raises(InputError, match="--horizon"):
            ReplayOptions(horizon_s=0.0)
