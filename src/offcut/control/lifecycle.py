"""Handlers of the controller's own start and stop."""

from __future__ import annotations

from offcut.control import ended_jobs, nodes, stale_journal
from offcut.control.event_context import EventContext
from offcut.model import events as ev


def on_controller_started(context: EventContext, event: ev.ControllerStarted) -> None:
    """Set the timers again, and go on above numbers that the journal has forgotten.

    The time without a controller does not count: what the timers wait for could not be reported then.
    """
    state = context.state
    state.stopping = False
    ended_jobs.note_older_ends(state)
    ended_jobs.archive(context)
    for timer, at_s in list(state.timers.items()):
        context.set_timer(timer, max(0.0, at_s + context.passed_s - context.now_s))
    stale_journal.lift_incarnations(context, event.incarnation)
    for newest in event.generations:
        job = state.jobs.get(newest.job)
        if job is not None:
            stale_journal.lift_generation(context, job, newest.generation)
    context.problem_changed = True


def on_controller_stopping(context: EventContext, event: ev.ControllerStopping) -> None:
    """Release every node. Whether nodes are claimed stays as it is, for the next controller."""
    context.state.stopping = True
    context.problem_changed = True
    nodes.release_held(context, context.state.nodes, "released: the controller ends")
