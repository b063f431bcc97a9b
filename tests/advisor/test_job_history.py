"""Job histories: families, jobs that leave them, changes, costs; and which size is tried next."""

from __future__ import annotations

import math

import pytest

from offcut.advisor import Circumstances, Evidence, JobHistories, load
from offcut.advisor.curve_models import ladder, shape_of
from offcut.advisor.posterior import Point, log_efficiency
from offcut.errors import InputError
from offcut.model import ScalingCurve, Sizes

SIZES = Sizes.parse("1:64")


def curve(n: int) -> float:
    return 300 * n / (1 + 0.02 * (n - 1))


def see(histories: JobHistories, job: str, *sizes: int, factor: float = 1.0, generation: int = 1) -> bool:
    fits = True
    for i, n in enumerate(sizes):
        fits &= histories.observe(
            job, generation=generation + i, size=n, rate=factor * curve(n), spread=0.03, stretches=8, settled=True
        )
    return fits


def evidence(histories: JobHistories, job: str) -> Evidence:
    return histories.evidence(job, SIZES, None)


def circumstances(**fields) -> Circumstances:
    given = {
        "size": 8, "fair_size": 8, "grow_cost_s": 0.3, "shrink_cost_s": 0.2, "settle_s": 4.0, "expected_run_s": 1800.0,
    }  # fmt: skip
    return Circumstances(**given | fields)


class TestFamilies:
    def test_relatives_share_what_they_know(self):
        histories = JobHistories()
        histories.join("a", "sweep")
        histories.join("b", "sweep")
        see(histories, "a", 8, 2)
        assert [point.size for point in evidence(histories, "b").family] == [2, 8]
        assert evidence(histories, "a").family == ()

    def test_the_most_specific_family_comes_first(self):
        histories = JobHistories()
        for job, keys in {"a": ("sweep",), "b": ("sweep", "model x"), "c": ("sweep", "model x")}.items():
            for key in keys:
                histories.join(job, key)
        see(histories, "a", 4)
        assert evidence(histories, "c").family[0].size == 4, "until its model has been seen the sweep must do"
        see(histories, "b", 16)
        assert [point.size for point in evidence(histories, "c").family] == [16]

    def test_a_job_that_joins_a_family_late_brings_its_measurements(self):
        histories = JobHistories()
        see(histories, "a", 8)
        assert histories.join("a", "model x")
        assert not histories.join("a", "model x")
        histories.join("b", "model x")
        assert [point.size for point in evidence(histories, "b").family] == [8]

    def test_a_job_unlike_its_family_is_noticed_and_leaves_no_points_in_it(self):
        histories = JobHistories()
        for job in ("a", "b", "c"):
            histories.join(job, "sweep")
        see(histories, "a", 8, 2)
        assert see(histories, "b", 32, factor=0.5), "at a size that nobody was at, nobody can tell"
        assert not see(histories, "b", 8, factor=0.5, generation=9)
        assert evidence(histories, "b").family == ()
        assert [point.size for point in evidence(histories, "c").family] == [2, 8]

    def test_relatives_that_differ_by_noise_stay(self):
        histories = JobHistories()
        for i in range(40):
            histories.join(f"j{i}", "sweep")
            assert see(histories, f"j{i}", 8, 3, factor=1 + 0.05 * math.sin(i))

    def test_only_the_newest_of_a_family_count(self):
        histories = JobHistories()
        for i in range(50):
            histories.join(f"j{i}", "sweep")
            see(histories, f"j{i}", 8)
        assert len(histories.families["sweep"]) == 16


class TestObservations:
    def test_a_longer_segment_replaces_the_first_one_of_its_generation(self):
        histories = JobHistories()
        see(histories, "a", 8)
        see(histories, "a", 8, factor=1.1)
        (point,) = evidence(histories, "a").measured
        assert point.log_efficiency == pytest.approx(log_efficiency(8, 1.1 * curve(8)))

    def test_segments_of_two_generations_both_count(self):
        histories = JobHistories()
        see(histories, "a", 8)
        see(histories, "a", 8, factor=1.1, generation=5)
        (point,) = evidence(histories, "a").measured
        assert curve(8) < 8 * math.exp(point.log_efficiency) < 1.1 * curve(8)

    def test_a_change_moves_older_observations_and_makes_them_less_certain(self):
        histories = JobHistories()
        see(histories, "a", 8, 2)
        before = {p.size: p for p in evidence(histories, "a").measured}
        assert histories.shift("a", size=8, rate=0.8 * curve(8)) == pytest.approx(0.8)
        after = {p.size: p for p in evidence(histories, "a").measured}
        assert after[2].log_efficiency == pytest.approx(before[2].log_efficiency + math.log(0.8))
        assert after[2].variance > before[2].variance

    def test_jobs_that_ended_shape_the_prior(self):
        histories = JobHistories()
        flat = {n: 100.0 * min(n, 2) for n in (1, 2, 4, 8, 16, 32, 64)}
        before = histories.shape
        for i in range(6):
            for generation, (n, rate) in enumerate(flat.items()):
                histories.observe(
                    f"j{i}", generation=generation, size=n, rate=rate, spread=0.0, stretches=8, settled=True
                )
            histories.find_or_add(f"j{i}").posterior = load("gp").posterior(evidence(histories, f"j{i}"))
            histories.end(f"j{i}", 100.0 + i)
        assert histories.shape[6] < 2 * before[6]
        assert histories.typical_run_s == pytest.approx(102.5)

    def test_costs_are_the_jobs_own_then_those_of_all(self):
        histories = JobHistories()
        assert histories.cost_s("a", "grow", 9.0) == 9.0
        for took_s in (0.2, 0.3, 7.0):
            histories.note_cost("a", "grow", took_s)
        assert histories.cost_s("a", "grow", 9.0) == 0.3
        assert histories.cost_s("b", "grow", 9.0) == 0.3
        histories.note_cost("b", "grow", 2.0)
        assert histories.cost_s("b", "grow", 9.0) == 2.0
        assert histories.cost_s("b", "shrink", 9.0) == 9.0


class TestNextSize:
    gp = load("gp")

    def of(self, own: tuple[int, ...] = (8,), family: tuple[int, ...] = (), **fields) -> int | None:
        def made(sizes):
            return tuple(Point(n, log_efficiency(n, curve(n)), 4e-4) for n in sizes)

        return self.gp.next_size(
            Evidence(sizes=SIZES, measured=made(own), family=made(family)), circumstances(**fields)
        )

    def test_the_ladder_goes_down_by_thirds(self):
        assert ladder(SIZES, 200) == [64, 21, 7, 2, 1]
        assert ladder(Sizes.parse("4,8,16"), 20) == [16, 4]

    def test_a_new_job_tries_smaller_sizes_then_nothing(self):
        assert self.of() == 2
        assert self.of((8, 2)) == 1
        assert self.of((8, 2, 1)) is None

    def test_the_fair_share_is_tried_where_it_is_larger(self):
        assert self.of((2,), fair_size=12) == 12

    def test_a_job_of_five_minutes_without_family_tries_nothing_where_a_resize_takes_18_s(self):
        assert self.of(expected_run_s=300.0, grow_cost_s=18.0, shrink_cost_s=12.0) is None
        assert self.of(expected_run_s=300.0) == 2, "in process it costs next to nothing"
        assert self.of(expected_run_s=18_000.0, grow_cost_s=18.0, shrink_cost_s=12.0) == 2

    def test_waiting_relatives_raise_the_budget_of_a_probe(self):
        assert self.of(expected_run_s=300.0, grow_cost_s=18.0, shrink_cost_s=12.0, relatives=4) == 2

    def test_spent_node_seconds_count_against_the_budget(self):
        assert self.of((8, 2), spent_node_s=1e4) is None

    def test_the_second_job_of_a_family_tries_nothing(self):
        assert self.of((8,), family=(8, 2)) is None

    def test_one_at_a_time_in_a_family(self):
        assert self.of(relative_probes=True) is None

    def test_nothing_before_the_first_measurement(self):
        assert self.of(()) is None

    def test_the_published_order(self):
        inverse, own = load("inverse"), (Point(8, 1.0, 1e-4),)
        at = circumstances(size=8, fair_size=49)
        assert inverse.next_size(Evidence(sizes=SIZES, measured=own), at) == 49
        own = (*own, Point(49, 1.0, 1e-4))
        assert (
            inverse.next_size(Evidence(sizes=SIZES, measured=own), circumstances(size=49, fair_size=49, probes=1)) == 7
        )


class TestProfilers:
    def test_a_given_curve_is_believed_until_it_is_measured(self):
        given = ScalingCurve((1, 8, 64), (10.0, 40.0, 60.0))
        believed = load("gp").posterior(Evidence(sizes=SIZES, given=given))
        ratio = believed.curve.rate_at(8) / believed.curve.rate_at(1)
        assert ratio == pytest.approx(4.0)
        own = tuple(Point(n, log_efficiency(n, 100.0 * n), 1e-4) for n in (1, 8, 32))
        measured = load("gp").posterior(Evidence(sizes=SIZES, measured=own, given=given))
        assert measured.curve.rate_at(8) / measured.curve.rate_at(1) == pytest.approx(8.0, rel=0.05)
        assert load("oracle").posterior(Evidence(sizes=SIZES, given=given)).curve == given

    def test_a_shape_survives_zero_rates(self):
        assert all(map(math.isfinite, shape_of(ScalingCurve((1, 2, 4), (0.0, 0.0, 3.0)))))

    def test_passive_interpolates_and_goes_on_linearly(self):
        own = (Point(4, math.log(10.0), 1e-4), Point(8, math.log(5.0), 1e-4))
        found = load("passive").posterior(Evidence(sizes=SIZES, measured=own)).curve
        assert [found.rate_at(n) for n in (2, 4, 8, 16)] == pytest.approx([20, 40, 40, 80])

    @pytest.mark.parametrize("name", ["linear", "amdahl", "oracle"])
    def test_models_without_measurements(self, name):
        profiler = load(name)
        assert not profiler.learns
        assert profiler.next_size(Evidence(sizes=SIZES), circumstances()) is None
        assert profiler.posterior(Evidence(sizes=SIZES)).curve.max_nodes == 64

    def test_a_users_own_curve_model(self, tmp_path):
        path = tmp_path / "mine.py"
        path.write_text("def curve(known):\n    return {n: 2.0 * n for n in known.sizes.allowed}\n")
        profiler = load(f"{path}:curve")
        assert profiler.posterior(Evidence(sizes=SIZES)).curve.rate_at(64) == 128.0

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("def curve(known):\n    return {1: -1.0, 64: 1.0}", "is -1.0"),
            ("def curve(known):\n    return {1: 1.0}", "ends at 1, the job's sizes at 64"),
            ("def curve(known):\n    return 3", "it returned int"),
            ("def curve(known):\n    return known.nothing", "AttributeError"),
        ],
    )
    def test_a_users_own_curve_model_with_invalid_answers_is_refused(self, tmp_path, text, words):
        path = tmp_path / "mine.py"
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            load(str(path)).posterior(Evidence(sizes=SIZES))

    def test_unknown_models_and_files_are_refused(self, tmp_path):
        for name, words in {
            "best": "unknown profiler 'best'",
            "nowhere.py:f": "not found",
        }.items():
            with pytest.raises(InputError, match=words):
                load(name)
        broken = tmp_path / "broken.py"
        broken.write_text("def (")
        with pytest.raises(InputError, match="SyntaxError"):
            load(str(broken))
        broken.with_name("empty.py").write_text("")
        with pytest.raises(InputError, match="no function 'f'"):
            load(f"{broken.with_name('empty.py')}:f")
