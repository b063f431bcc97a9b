"""A controller begins, perhaps where another was killed; and it ends."""

from __future__ import annotations

from offcut.control import nodes, stale_journal
from offcut.control.event_context import EventContext
from offcut.model import events as ev


def on_controller_started(context: EventContext, event: ev.ControllerStarted) -> None:
    """Timers are set again. The time without a controller does not count: nobody could report what they wait for."""
    state = context.state
    state.stopping = False
    for timer, at_s in list(state.timers.items()):
        context.set_timer(timer, max(0.0, at_s + context.passed_s - context.now_s))
    stale_journal.lift_incarnations(context, event.incarnation)
    for newest in event.generations:
        job = state.jobs.get(newest.job)
        if job is not None:
            stale_journal.lift_generation(context, job, newest.generation)
    context.problem_changed = True


def on_controller_stopping(context: EventContext, event: ev.ControllerStopping) -> None:
    """Every node is released. What was said about claiming stands, for the next controller."""
    context.state.stopping = True
    context.problem_changed = True
    nodes.release_held(context, context.state.nodes, "released: the controller ends")
