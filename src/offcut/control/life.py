"""A controller begins, perhaps where another was killed; and it ends."""

from __future__ import annotations

from offcut.control import nodes, numbers
from offcut.control.turn import Turn
from offcut.model import events as ev


def on_controller_started(turn: Turn, event: ev.ControllerStarted) -> None:
    """Timers are set again. The time without a controller does not count: nobody could report what they wait for."""
    state = turn.state
    state.stopping = False
    for key, at_s in list(state.timers.items()):
        turn.timer(key, at_s + turn.passed_s - turn.now_s)
    numbers.lift_incarnations(turn, event.incarnation)
    for known in event.generations:
        job = state.jobs.get(known.job)
        if job is not None:
            numbers.lift_generation(turn, job, known.generation)
    turn.dirty = True


def on_controller_stopping(turn: Turn, event: ev.ControllerStopping) -> None:
    """Every node is released. What was said about claiming stands, for the next controller."""
    turn.state.stopping = True
    turn.dirty = True
    nodes.release_held(turn, turn.state.nodes, "released: the controller ends")
