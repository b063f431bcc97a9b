"""What each timer does when it fires. A timer's key names its purpose and its subject."""

from __future__ import annotations

from offcut.control import jobs, nodes, profiling, resize, workers
from offcut.control.turn import Turn
from offcut.model import events as ev


def on_timer_fired(turn: Turn, event: ev.TimerFired) -> None:
    at_s = turn.state.timers.get(event.key)
    if at_s is None or turn.now_s < at_s:
        return  # answered in the meantime, or set anew for later
    del turn.state.timers[event.key]
    purpose, _, subject = event.key.partition(":")
    match purpose:
        case "boot":
            nodes.give_up_booting(turn, subject)
        case "hold":
            nodes.release_unused(turn, subject)
        case "leaving":
            resize.stay_after_all(turn, subject)
        case "rest":
            nodes.end_rest(turn, subject)
        case "solve":
            turn.dirty = True
        case "ready" | "retry":
            name, _, incarnation = subject.rpartition(":")
            (workers.give_up_starting if purpose == "ready" else workers.retry)(turn, name, int(incarnation))
        case "join" | "relaunch":
            if subject in turn.state.jobs:
                turn.resize(subject, gone=False)
        case "broken":
            workers.renew(turn, subject)
        case "depart":
            if subject in turn.state.jobs:
                resize.give_up_departing(turn, turn.state.jobs[subject])
        case "probe":
            profiling.give_up(turn, subject)
        case "finish":
            jobs.give_up_finishing(turn, subject)
        case _:
            turn.tell(event.key, "an unknown timer fired")
