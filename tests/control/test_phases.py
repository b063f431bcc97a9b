"""The tables of phases agree with what happens, and the page about the architecture shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
import transitions
from world import World

from offcut.control import Settings, phases
from offcut.model import effects as ef
from offcut.model import events as ev

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


def ready_beside_one_that_starts() -> World:
    """The job needs two nodes; its worker on n1 is ready, that on n2 never will be."""
    world = World()
    world.never_ready.add("n2")
    world.offer("n1", "n2")
    world.submit("a", "2")
    world.run_until(lambda: world.state.nodes["n1"].worker == "ready")
    return world


def test_a_ready_worker_fails() -> None:
    world = ready_beside_one_that_starts()
    world.exit(world.state.nodes["n1"].member, "failed", "it broke")
    assert world.state.nodes["n1"].worker == "stopped"


def test_an_agent_comes_back_without_its_ready_worker() -> None:
    world = ready_beside_one_that_starts()
    world.send(ev.AgentReported(time_s=world.now_s, node="n1", workers=()))
    assert world.state.nodes["n1"].worker == "starting"


def test_an_agent_comes_back_with_a_later_worker_than_the_one_that_stopped() -> None:
    world = ready_beside_one_that_starts()
    world.exit(world.state.nodes["n1"].member, "failed", "it broke")
    newest = world.state.incarnations
    world.state.forgotten_incarnations.append((newest, newest + 10))
    world.state.incarnations += 10
    later = ev.RunningWorker("a", newest + 1, ready=True)
    world.send(ev.AgentReported(time_s=world.now_s, node="n1", workers=(later,)))
    assert world.state.nodes["n1"].worker == "ready"


def test_a_job_is_cancelled_while_its_script_comes_to_its_end() -> None:
    world = World()
    world.offer("n1")
    world.submit("a", "1:8")
    world.run_until(lambda: world.state.jobs["a"].state_holders)
    world.trained("a")
    assert world.state.jobs["a"].phase == "finishing"
    world.send(ev.JobCancelled(time_s=world.now_s, job="a"))
    assert world.state.jobs["a"].phase == "cancelled"


def test_a_job_fails_after_too_many_failures_while_it_runs() -> None:
    world = World()
    world.offer("n1")
    world.submit("a", "1:8", max_failures=0)
    world.run_until(lambda: world.state.jobs["a"].state_holders)
    world.exit(world.member("a", "n1"), "failed", "it broke")
    assert world.state.jobs["a"].phase == "failed"


def test_a_leaving_node_is_wanted() -> None:
    world = World()
    world.offer("n1", "n2")
    world.submit("a", "1:8")
    world.run_until(lambda: len(world.state.jobs["a"].state_holders) == 2)
    world.exit(world.member("a", "n2"), "left")
    assert world.state.nodes["n2"].phase == "leaving"
    effects = world.want("n2")
    assert any(isinstance(effect, ef.Release) and "n2" in effect.nodes for effect in effects)
    assert "n2" not in world.state.nodes


def test_a_node_with_a_ready_worker_is_wanted() -> None:
    world = ready_beside_one_that_starts()
    world.want("n1")
    assert "n1" not in world.state.nodes


def test_a_paused_job_is_cancelled() -> None:
    world = World()
    world.submit("a", "1:8")
    world.send(ev.JobPaused(time_s=world.now_s, job="a"))
    world.send(ev.JobCancelled(time_s=world.now_s, job="a"))
    assert world.state.jobs["a"].phase == "cancelled"


def test_a_job_whose_only_worker_cannot_start_fails() -> None:
    world = World()
    world.offer("n1")
    world.submit("a", "1:8", max_failures=0)
    world.run_until(lambda: world.state.nodes["n1"].worker == "starting")
    world.exit(world.state.nodes["n1"].member, "failed", "no such file")
    assert world.state.jobs["a"].phase == "failed"


def test_a_node_is_wanted_before_it_is_claimed_and_before_its_agent_answers() -> None:
    world = World()
    world.offer("n1")
    world.want("n1")
    world.submit("a", "1:8")
    world.offer("n2")
    world.run_until(lambda: world.state.nodes["n2"].phase == "claimed")
    world.want("n2")
    assert not world.state.nodes


def test_a_job_of_mode_restart_grows() -> None:
    """Its members are told to end; where the job keeps the node, a successor starts."""
    world = World(Settings(relaunch_window_s=0.1, restart_cost_s=1.0))
    world.offer("n1", "n2")
    world.submit("a", "1:8", mode="restart")
    world.until_members("a", ["n1", "n2"])
    world.offer("n3")
    world.until_worker("n1", "leaving")
    world.want("n2")
    world.until_worker("n1", "starting")
    assert "n2" not in world.state.nodes


def test_a_paused_job_is_resumed_and_ends() -> None:
    world = World()
    world.offer("n1")
    world.submit("a", "1:8")
    world.until_members("a", ["n1"])
    world.send(ev.JobPaused(time_s=world.now_s, job="a"))
    world.send(ev.JobResumed(time_s=world.now_s, job="a"))
    world.until_members("a", ["n1"])
    world.exit(world.member("a", "n1"), "finished")
    assert world.state.jobs["a"].phase == "finished"


def running_on_two_nodes(**fields: object) -> World:
    world = World()
    world.offer("n1", "n2")
    world.submit("a", "1:8", **fields)
    world.until_members("a", ["n1", "n2"])
    return world


def test_a_finishing_job_loses_its_first_member() -> None:
    """Its end is run again, from the final checkpoint."""
    world = running_on_two_nodes()
    world.trained("a")
    world.lose(world.members("a")[0])
    assert world.state.jobs["a"].phase == "waiting"


def test_a_script_fails_after_its_training() -> None:
    world = running_on_two_nodes()
    world.trained("a")
    world.exit(world.state.jobs["a"].members[0], "failed", "it cannot save the model")
    assert world.state.jobs["a"].phase == "failed"


def test_a_waiting_and_a_running_job_are_cancelled() -> None:
    world = World()
    world.offer("n1")
    for job in ("a", "b"):
        world.submit(job, "1")
    world.until_members("a", ["n1"])
    for job in ("a", "b"):
        world.send(ev.JobCancelled(time_s=world.now_s, job=job))
        assert world.state.jobs[job].phase == "cancelled"


def test_an_agent_of_an_earlier_claim_answers() -> None:
    world = World()
    world.offer("n1")
    world.send(ev.AgentReported(time_s=world.now_s, node="n1", workers=()))
    assert world.state.nodes["n1"].phase == "up"


def test_the_queue_does_not_want_a_leaving_node_after_all() -> None:
    world = running_on_two_nodes()
    world.exit(world.member("a", "n2"), "left")
    assert world.state.nodes["n2"].phase == "leaving"
    world.run_until(lambda: world.state.nodes["n2"].phase == "up")


def test_an_agent_comes_back_without_a_member() -> None:
    world = running_on_two_nodes()
    world.send(ev.AgentReported(time_s=world.now_s, node="n2", workers=()))
    assert world.state.nodes["n2"].worker == "starting"


def test_a_worker_is_started_again_after_a_failure() -> None:
    world = running_on_two_nodes()
    world.exit(world.member("a", "n2"), "failed", "it broke")
    assert world.state.nodes["n2"].worker == "stopped"
    world.until_worker("n2", "starting")


def test_a_job_is_cancelled_while_its_worker_starts() -> None:
    world = World()
    world.offer("n1")
    world.submit("a", "1")
    world.until_worker("n1", "starting")
    world.send(ev.JobCancelled(time_s=world.now_s, job="a"))
    assert world.state.nodes["n1"].worker == "none"


SCENARIOS = (
    test_a_finishing_job_loses_its_first_member,
    test_a_script_fails_after_its_training,
    test_a_waiting_and_a_running_job_are_cancelled,
    test_an_agent_of_an_earlier_claim_answers,
    test_the_queue_does_not_want_a_leaving_node_after_all,
    test_an_agent_comes_back_without_a_member,
    test_a_worker_is_started_again_after_a_failure,
    test_a_job_is_cancelled_while_its_worker_starts,
    test_a_node_is_wanted_before_it_is_claimed_and_before_its_agent_answers,
    test_a_job_of_mode_restart_grows,
    test_a_paused_job_is_resumed_and_ends,
    test_a_ready_worker_fails,
    test_an_agent_comes_back_without_its_ready_worker,
    test_an_agent_comes_back_with_a_later_worker_than_the_one_that_stopped,
    test_a_job_is_cancelled_while_its_script_comes_to_its_end,
    test_a_job_fails_after_too_many_failures_while_it_runs,
    test_a_leaving_node_is_wanted,
    test_a_node_with_a_ready_worker_is_wanted,
    test_a_paused_job_is_cancelled,
    test_a_job_whose_only_worker_cannot_start_fails,
)


def test_every_change_in_the_tables_happens() -> None:
    """In the tests above; that no other change happens is checked in every test of the controller."""
    transitions.observed.clear()
    for scenario in SCENARIOS:
        scenario()
    assert transitions.observed == transitions.ALLOWED


@pytest.mark.parametrize("what", ["node", "worker", "job"])
def test_the_architecture_page_shows_the_tables(what: str) -> None:
    assert f"```text\n{phases.drawing(what)}\n```" in ARCHITECTURE.read_text()
