"""What a query of Slurm says about a pilot, in every state that a pilot can be in."""

from __future__ import annotations

import pytest

from offcut.cluster.slurm.pilot_state import Observation, Pilot, PilotState, observe, stray_jobs
from offcut.cluster.slurm.records import ENDED, JobRow

KNOWN_TO_SLURM = [state for state in PilotState if state is not PilotState.SUBMITTING]
GIVEN_UP = (PilotState.WITHDRAWN, PilotState.RELEASED)
HOLDING = (PilotState.RUNNING, PilotState.WANTED, PilotState.RELEASED)
LIMIT_S = 30.0


def row(state: str, job: str = "7", reason: str = "Resources") -> JobRow:
    return JobRow(
        id=job, state=state, user="u", name="offcut-1", partitions=("idle",), node_count=1, nodes="n1", reason=reason
    )


def seen(
    state: PilotState, shown: JobRow | None, *, busy: bool = False, after_s: float = 1.0, cancelled: bool = False
) -> Observation:
    pilot = Pilot("n1", state, submitted_s=100.0, job="7", cancelled=cancelled)
    return observe(pilot, shown, node_busy=busy, now_s=100.0 + after_s, pending_limit_s=LIMIT_S)


@pytest.mark.parametrize("state", KNOWN_TO_SLURM)
def test_a_pilot_that_slurm_does_not_know_any_more_has_ended(state: PilotState) -> None:
    assert seen(state, None) == Observation(state=None)


@pytest.mark.parametrize("state", KNOWN_TO_SLURM)
def test_a_preemption_is_told_unless_the_controller_knows_of_it(state: PilotState) -> None:
    known = state is PilotState.WANTED or state in GIVEN_UP
    assert seen(state, row("PREEMPTED")) == Observation(state=None, wanted=not known)


@pytest.mark.parametrize("end", sorted(ENDED))
def test_the_end_of_a_pilot_that_was_given_up_is_not_a_fault(end: str) -> None:
    for state in GIVEN_UP:
        assert seen(state, row(end), cancelled=True) == Observation(state=None)


@pytest.mark.parametrize("state", [*GIVEN_UP, PilotState.RUNNING])
def test_the_node_of_a_pilot_that_somebody_else_cancelled_is_set_aside(state: PilotState) -> None:
    # The controller may have noticed first that the agent is gone, and have released the node.
    assert seen(state, row("CANCELLED")) == Observation(state=None, set_aside=True)


def test_a_failed_pilot_s_node_is_set_aside_and_a_finished_one_s_is_not() -> None:
    assert seen(PilotState.RUNNING, row("COMPLETED")) == Observation(state=None)
    assert seen(PilotState.RUNNING, row("TIMEOUT")) == Observation(state=None)
    assert seen(PilotState.RUNNING, row("CANCELLED")) == Observation(state=None, set_aside=True)
    assert seen(PilotState.RUNNING, row("NODE_FAIL")) == Observation(state=None, set_aside=True)
    failed = seen(PilotState.RUNNING, row("FAILED", reason="NonZeroExitCode"))
    assert failed == Observation(state=None, set_aside=True, failure="pilot 7 on n1 ended as FAILED (NonZeroExitCode)")


@pytest.mark.parametrize("state", KNOWN_TO_SLURM)
def test_a_job_that_runs_holds_its_node(state: PilotState) -> None:
    for shown in ("CONFIGURING", "RUNNING", "COMPLETING"):
        after = seen(state, row(shown))
        if state in GIVEN_UP:
            assert after == Observation(state=PilotState.RELEASED, cancel=shown == "RUNNING")
        elif state is PilotState.WANTED:
            assert after == Observation(state=PilotState.WANTED)
        else:
            assert after == Observation(state=PilotState.RUNNING)


@pytest.mark.parametrize("state", KNOWN_TO_SLURM)
def test_a_pending_job_that_was_given_up_is_cancelled_again(state: PilotState) -> None:
    after = seen(state, row("PENDING"))
    if state in GIVEN_UP:
        assert after == Observation(state=PilotState.WITHDRAWN, cancel=True)
    else:
        assert after == Observation(state=PilotState.PENDING)


def test_a_pilot_found_pending_twice_on_a_busy_node_came_too_late() -> None:
    assert seen(PilotState.SUBMITTED, row("PENDING"), busy=True) == Observation(state=PilotState.PENDING)
    assert seen(PilotState.PENDING, row("PENDING"), busy=True) == Observation(
        state=PilotState.WITHDRAWN, cancel=True, wanted=True
    )


def test_a_pilot_that_stays_pending_is_withdrawn_and_at_fault_only_where_it_does_not_wait_for_nodes() -> None:
    assert seen(PilotState.PENDING, row("PENDING"), after_s=LIMIT_S) == Observation(state=PilotState.PENDING)
    late = seen(PilotState.PENDING, row("PENDING"), after_s=LIMIT_S + 1)
    said = "its pilot 7 stayed pending: Resources"
    assert late == Observation(state=PilotState.WITHDRAWN, cancel=True, set_aside=True, refused=said)
    limited = seen(PilotState.PENDING, row("PENDING", reason="QOSMaxJobsPerUserLimit"), after_s=LIMIT_S + 1)
    assert limited.failure == limited.refused == "its pilot 7 stayed pending: QOSMaxJobsPerUserLimit"


def test_a_pilot_that_a_crashed_slurmctld_has_forgotten_to_have_started_waits_again() -> None:
    for state in (PilotState.RUNNING, PilotState.WANTED):
        assert seen(state, row("PENDING"), busy=True, after_s=LIMIT_S + 1) == Observation(state=PilotState.PENDING)


@pytest.mark.parametrize("state", list(PilotState))
def test_giving_up_remembers_whether_the_node_was_held(state: PilotState) -> None:
    pilot = Pilot("n1", state, submitted_s=0.0)
    pilot.give_up()
    assert pilot.given_up
    assert pilot.holds_node == (state in HOLDING)


def test_jobs_of_our_name_that_belong_to_no_pilot_are_stray() -> None:
    rows = {job: row(state, job) for job, state in (("7", "RUNNING"), ("8", "PENDING"), ("9", "COMPLETED"))}
    pilot = Pilot("n1", PilotState.RUNNING, submitted_s=0.0, job="7")
    assert stray_jobs(rows, [pilot]) == ["8"]
    assert stray_jobs(rows, [pilot, Pilot("n2", PilotState.SUBMITTING, submitted_s=0.0)]) == []
