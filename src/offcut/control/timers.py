"""What each timer does when it fires. A timer's key names its purpose and its subject."""

from __future__ import annotations

from offcut.control import curve_learning, jobs, membership, nodes, workers
from offcut.control.event_context import EventContext
from offcut.model import events as ev


def on_timer_fired(context: EventContext, event: ev.TimerFired) -> None:
    at_s = context.state.timers.get(event.key)
    if at_s is None or context.now_s < at_s:
        return  # answered in the meantime, or set anew for later
    del context.state.timers[event.key]
    purpose, _, subject = event.key.partition(":")
    match purpose:
        case "boot":
            nodes.give_up_booting(context, subject)
        case "hold":
            nodes.release_unused(context, subject)
        case "leaving":
            membership.stay_after_all(context, subject)
        case "rest":
            nodes.end_rest(context, subject)
        case "solve":
            context.problem_changed = True
        case "ready" | "retry":
            name, _, incarnation = subject.rpartition(":")
            (workers.give_up_starting if purpose == "ready" else workers.retry)(context, name, int(incarnation))
        case "join" | "relaunch":
            if subject in context.state.jobs:
                context.change_membership(subject, gone=False)
        case "broken":
            workers.renew(context, subject)
        case "depart":
            if subject in context.state.jobs:
                membership.give_up_departing(context, context.state.jobs[subject])
        case "probe":
            curve_learning.give_up(context, subject)
        case "finish":
            jobs.give_up_finishing(context, subject)
        case _:
            context.log(event.key, "an unknown timer fired")
