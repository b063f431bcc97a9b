"""Jobs with unknown scaling: what is measured, which sizes are tried, what happens when nodes leave meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from world import World

from offcut.control import Settings
from offcut.control.state import Probe
from offcut.model import ScalingCurve
from offcut.model import effects as ef
from offcut.model import events as ev
from offcut.service import curve_report

NODES = tuple(f"n{i}" for i in range(1, 9))


def plateau(n: int) -> float:
    return 100.0 * min(n, 3)


def measure(world: World, job: str, rate: float | None = None, **fields) -> list[str]:
    """Report a measurement of the job at its present size. Return what the user is told."""
    item = world.state.jobs[job]
    told = len(world.story(job))
    world.send(
        ev.JobMeasured(
            time_s=world.now_s,
            job=job,
            generation=item.generation,
            size=item.size,
            rate=plateau(item.size) if rate is None else rate,
            span_s=4.0,
            **fields,
        )
    )
    return world.story(job)[told:]


def started(settings: Settings | None = None, *nodes: str, **fields) -> World:
    # Nodes that a job gives up for a moment stay with us.
    world = World(replace(settings or Settings(), hold_s=1000.0))
    world.submit("a", "1:8", **fields)
    world.offer(*(nodes or NODES))
    world.until_settled()
    return world


def learn_whole(world: World, job: str) -> list[int]:
    """Measure the job until it settles. Return the sizes that it had."""
    sizes = []
    for _ in range(8):
        sizes.append(world.state.jobs[job].size)
        measure(world, job)
        world.until_settled()
        if world.state.jobs[job].probe is None and world.state.jobs[job].size == sizes[-1]:
            break
    return sizes


def test_a_new_job_tries_sizes_and_gets_what_it_can_use():
    world = started()
    assert world.state.jobs["a"].size == 8
    sizes = learn_whole(world, "a")
    assert sizes[:3] == [8, 2, 1]
    assert sizes[-1] >= 3
    assert any("tries 2 nodes" in line for line in world.story("a"))
    assert world.state.histories.find_or_add("a").probes == 2
    assert world.state.histories.find_or_add("a").spent_node_s > 0
    assert "learned from what was measured at 1, 2" in curve_report.words(world.state, world.state.jobs["a"])[0]


def test_the_second_job_of_a_family_tries_nothing():
    world = started(family="sweep")
    learn_whole(world, "a")
    world.submit("b", "1:8", family="sweep")
    world.until_settled()
    a, b = world.state.jobs["a"], world.state.jobs["b"]
    assert a.size + b.size == 8
    assert min(a.size, b.size) >= 3, "both can use three nodes, and the newcomer's family knows"
    for _ in range(3):
        measure(world, "b")
        world.until_settled()
        assert b.probe is None
    assert world.state.histories.find_or_add("b").probes == 0


def test_a_fingerprint_makes_a_family():
    world = World()
    world.fingerprints = {"a": "c0ffee", "b": "c0ffee", "c": "decaf"}
    for name in "abc":
        world.submit(name, "1:8")
    world.offer(*NODES)
    world.until_settled()
    measure(world, "a")
    relatives = {name: curve_report.describe(world.state, world.state.jobs[name])["relatives"] for name in "abc"}
    assert relatives == {"a": 0, "b": 1, "c": 0}
    world.submit("d", "1:8")
    world.fingerprints["d"] = "c0ffee"
    world.offer("m1")
    world.until_settled()
    assert any(line.startswith("it begins with the curves of") for line in world.story("d"))


def test_a_job_of_five_minutes_without_family_tries_nothing_where_a_resize_takes_18_s():
    # 300 samples/s on 8 nodes.
    for goal_samples, probes in ((300 * 300, 0), (300 * 18_000, 1)):
        world = started(goal_samples=goal_samples, grow_cost_s=18.0, shrink_cost_s=12.0)
        measure(world, "a")
        assert world.state.histories.find_or_add("a").probes == probes


def test_a_reclaim_while_it_tries_yields_the_size_that_is_left():
    world = started(None, *NODES, *(f"m{i}" for i in range(1, 9)))
    world.submit("b", "1:8")
    world.until_settled()
    measure(world, "a")
    world.until_settled()
    a = world.state.jobs["a"]
    assert (a.size, a.probe.size) == (2, 2)
    world.want(world.members("a")[1])
    world.until_settled()
    assert (a.size, a.probe.size) == (1, 1), "it keeps trying what it has left"
    measure(world, "a")
    assert a.probe is None or a.probe.size > 1
    assert [p["size"] for p in curve_report.describe(world.state, a)["own"]] == [1, 8]


def test_all_its_nodes_go_while_it_tries():
    world = started()
    measure(world, "a")
    world.until_settled()
    world.want(*NODES)
    assert world.state.jobs["a"].probe is None
    world.offer(*NODES)
    world.until_settled()
    assert world.state.jobs["a"].size > 0


def test_a_probe_that_is_never_measured_is_given_up():
    world = started(Settings(probe_limit_s=30.0))
    measure(world, "a")
    world.until_settled()
    assert world.state.jobs["a"].size == 2
    world.run_until(lambda: world.state.jobs["a"].probe is None)
    world.until_settled()
    assert "no throughput at 2 nodes within 30 s" in world.story("a")
    assert world.state.jobs["a"].size > 2


def test_a_job_that_has_trained_tries_no_size():
    """Its probe could not be measured any more, and would keep other jobs from trying sizes."""
    world = started(finish_limit_s=20.0)
    measure(world, "a")
    assert world.state.jobs["a"].probe is not None
    world.trained("a")
    assert world.state.jobs["a"].phase == "finishing"
    assert world.state.jobs["a"].probe is None


def test_at_most_two_jobs_try_at_once():
    world = World()
    for name in "abcd":
        world.submit(name, "1:8")
    world.offer(*(f"n{i}" for i in range(24)))
    world.until_settled()
    for name in "abcd":
        measure(world, name, 10.0 * world.state.jobs[name].size)
    assert sum(job.probe is not None for job in world.state.jobs.values()) == 2


def test_a_probe_counts_only_nodes_that_the_problem_has():
    """Nodes that a finishing job still holds cannot be given to another job."""
    world = World(Settings(hold_s=1000.0))
    world.submit("done", "4", weight=100.0)
    world.offer(*NODES[:4])
    world.until_settled()
    world.submit("a", "1:8")
    world.offer(*NODES[4:])
    world.until_settled()
    job = world.state.jobs["a"]
    assert (world.state.jobs["done"].size, job.size) == (4, 4)
    job.probe = Probe(6, world.now_s)
    world.trained("done")
    assert world.state.jobs["done"].phase == "finishing"
    assert job.probe is None
    asked = world.questions[-1].problem
    assert sum(request.min_nodes for request in asked.jobs if not request.may_wait) <= asked.nodes
    assert world.story("allocation") == []


def test_a_paused_job_tries_nothing():
    world = started()
    measure(world, "a")
    world.send(ev.JobPaused(time_s=world.now_s, job="a"))
    assert world.state.jobs["a"].probe is None
    world.send(ev.JobResumed(time_s=world.now_s, job="a"))
    world.until_size("a", 8)


@pytest.mark.parametrize("rate", [0.0, -3.0, float("nan"), float("inf"), 1e15])
def test_absurd_rates_are_ignored_and_the_job_continues(rate):
    world = started()
    told = measure(world, "a", rate)
    assert len(told) == 1
    assert told[0].endswith("ignored")
    assert world.state.histories.find_or_add("a").observations == []
    assert world.state.jobs["a"].phase == "running"


def test_a_job_that_never_settles_is_trusted_little():
    world = started()
    assert any("never left its warm-up" in line for line in measure(world, "a", settled=False))
    assert curve_report.describe(world.state, world.state.jobs["a"])["own"][0]["deviation"] > 0.2


def test_a_wrong_given_curve_is_replaced_and_the_user_is_told():
    world = started(curve=ScalingCurve((1, 8), (10.0, 80.0)), family="sweep")
    sizes = [8]
    measure(world, "a")
    world.want(*NODES[4:])
    world.until_settled()
    measure(world, "a")
    sizes.append(world.state.jobs["a"].size)
    assert sizes == [8, 4], "a given curve needs no probe"
    assert any("The measurements count" in line for line in world.story("a"))
    words = curve_report.words(world.state, world.state.jobs["a"])
    assert "differs from what was measured" in words[-1]


def test_observations_at_one_size_only_are_said_to_be_so():
    world = started(None, "n1")
    measure(world, "a")
    (words,) = curve_report.words(world.state, world.state.jobs["a"])
    assert words == "It has been measured at 1 node only: at other sizes its curve is a guess."


def test_a_change_of_speed_is_logged_and_a_slow_node_is_not_held_against_the_job():
    world = started()
    learn_whole(world, "a")
    before = curve_report.describe(world.state, world.state.jobs["a"])["own"]
    size = world.state.jobs["a"].size
    told = measure(world, "a", 150.0, slow_node="n3", changed=True)
    assert told == [f"150 samples/s on {size} nodes, held up by n3: ignored"]
    assert curve_report.describe(world.state, world.state.jobs["a"])["own"] == before
    told = measure(world, "a", 150.0, changed=True)
    assert told[0] == f"its speed has changed by -50% at {size} nodes: measured again"


def test_resizes_are_charged_as_they_were_measured():
    world = started()
    measure(world, "a")
    world.until_settled()
    request = world.questions[-1].problem.jobs[0]
    assert request.grow_cost_s == pytest.approx(world.form_s)
    world.submit("b", "1:8")
    waiting = next(job for job in world.questions[-1].problem.jobs if job.id == "b")
    assert waiting.grow_cost_s == pytest.approx(world.form_s + world.ready_s), "a start waits for its worker besides"


def test_with_the_oracle_nothing_is_measured():
    world = started(Settings(profiler="oracle"), curve=ScalingCurve((1, 8), (10.0, 20.0)))
    assert measure(world, "a") == []
    assert world.questions[-1].problem.jobs[0].curve == ScalingCurve((1, 8), (10.0, 20.0))


def test_a_users_own_profiler_that_fails_leaves_the_jobs_running(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def curve(known):\n    return {}[known.sizes]\n")
    world = started(Settings(profiler=f"{path}:curve"))
    assert world.state.jobs["a"].size == 8
    assert any("could not be learned" in line for line in world.story("a"))
    assert not world.effects(ef.Release)
