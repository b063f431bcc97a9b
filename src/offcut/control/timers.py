"""What happens when a timer fires."""

from __future__ import annotations

from offcut.control import jobs, membership, nodes, probes, workers
from offcut.control.event_context import EventContext
from offcut.model import events as ev
from offcut.model.events import Timer


def on_timer_fired(context: EventContext, event: ev.TimerFired) -> None:
    at_s = context.state.timers.get(event.timer)
    if at_s is None or context.now_s < at_s:
        return  # cancelled in the meantime, or set again for later
    del context.state.timers[event.timer]
    match event.timer:
        case Timer("boot", node):
            nodes.give_up_booting(context, node)
        case Timer("hold", node):
            nodes.release_unused(context, node)
        case Timer("leaving", node):
            membership.use_again(context, node)
        case Timer("set_aside", node):
            nodes.end_set_aside(context, node)
        case Timer("ready", node, incarnation):
            workers.give_up_starting(context, node, incarnation)
        case Timer("retry", node, incarnation):
            workers.retry(context, node, incarnation)
        case Timer("join" | "relaunch", job):
            if job in context.state.jobs:
                context.change_membership(job, gone=False)
        case Timer("renew", job):
            workers.renew(context, job)
        case Timer("depart", job):
            if job in context.state.jobs:
                membership.give_up_departing(context, context.state.jobs[job])
        case Timer("probe", job):
            probes.give_up(context, job)
        case Timer("finish", job):
            jobs.give_up_finishing(context, job)
        case Timer("solve_again"):
            context.problem_changed = True
