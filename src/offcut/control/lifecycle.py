"""Handlers of the controller's own start and stop."""

from __future__ import annotations

from offcut.control import ended_jobs, nodes, stale_journal, trial_copies
from offcut.control.event_context import EventContext
from offcut.model import events as ev


def on_controller_started(context: EventContext, event: ev.ControllerStarted) -> None:
    """Set the timers again, and go on above numbers that the journal has forgotten.

    The time without a controller does not count: what the timers wait for could not be reported then.
    """
    state = context.state
    state.stopping = False
    state.lease_uncertain = False
    ended_jobs.note_older_ends(state)
    ended_jobs.archive(context)
    trial_copies.ask_again(state)
    for timer, at_s in list(state.timers.items()):
        context.set_timer(timer, max(0.0, at_s + context.passed_s - context.now_s))
    stale_journal.lift_incarnations(context, event.incarnation)
    for newest in event.generations:
        job = state.jobs.get(newest.job)
        if job is not None:
            stale_journal.lift_generation(context, job, newest.generation)
    context.problem_changed = True


def on_lease_checked(context: EventContext, event: ev.LeaseChecked) -> None:
    """Stop claiming nodes while another controller may have taken over; jobs keep what they have."""
    state = context.state
    if state.lease_uncertain == (not event.certain):
        return
    state.lease_uncertain = not event.certain
    context.log(
        "controller",
        "the shared directory answers again, and the lease on it is still ours: nodes are claimed again"
        if event.certain
        else "the shared directory does not answer, so that another controller may have taken it over: no node is "
        "claimed until it does",
    )
    # The answer to the present problem would claim nodes: a new version makes it stale.
    context.problem_changed = True


def on_controller_stopping(context: EventContext, event: ev.ControllerStopping) -> None:
    """Release every node. Whether nodes are claimed stays as it is, for the next controller."""
    context.state.stopping = True
    context.problem_changed = True
    nodes.release_held(context, context.state.nodes, "released: the controller ends")
