"""What of transformers' Trainer is part of the training's state, besides model, optimizer and scheduler."""

from __future__ import annotations

import json
from typing import Any

import torch
from transformers.trainer_callback import ExportableState

#: Fields of TrainerState. The others are settings, or this process's own.
_COUNTS = (
    "epoch",
    "global_step",
    "num_input_tokens_seen",
    "total_flos",
    "best_metric",
    "best_global_step",
    "best_model_checkpoint",
)
_FLAGS = ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log")
#: Attributes of the Trainer from which it computes the losses that it logs.
_SUMS = ("_total_loss_scalar", "_globalstep_last_logged", "_initial_global_step", "_initial_num_input_tokens_seen")


class TrainerProgress:
    """The state of a Trainer: TrainerState, TrainerControl, its callbacks with a state, the losses not logged yet.

    Args:
        trainer: the Trainer, whose training has begun.
    """

    #: Each member measures the runtimes in the log for itself.
    not_compared = ("log_history",)

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        #: The history as JSON, and how many entries that has: the state is asked for at every step.
        self._written = "[]"
        self._entries = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the state. The history is a text, because a state is copied leaf by leaf at every step."""
        trainer = self._trainer
        return {
            "counts": {name: getattr(trainer.state, name) for name in _COUNTS},
            "control": {name: getattr(trainer.control, name) for name in _FLAGS},
            "callbacks": [callback.state()["attributes"] for callback in self._callbacks()],
            "sums": {name: getattr(trainer, name, 0) for name in (*_SUMS, "current_flos")},
            "loss": getattr(trainer, "_tr_loss", torch.tensor(0.0)).detach().cpu(),
            "log_history": self._history(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replace the Trainer's state by `state`."""
        trainer = self._trainer
        for name, value in state["counts"].items():
            setattr(trainer.state, name, value)
        for name, value in state["control"].items():
            setattr(trainer.control, name, value)
        for callback, attributes in zip(self._callbacks(), state["callbacks"], strict=True):
            for name, value in attributes.items():
                setattr(callback, name, value)
        for name, value in state["sums"].items():
            setattr(trainer, name, value)
        trainer._tr_loss = state["loss"].clone().to(trainer.args.device)
        if state["log_history"] != self._history():
            trainer.state.log_history[:] = json.loads(state["log_history"])
            self._written, self._entries = state["log_history"], len(trainer.state.log_history)

    def _callbacks(self) -> list[Any]:
        return [item for item in self._trainer.callback_handler.callbacks if isinstance(item, ExportableState)]

    def _history(self) -> str:
        history = self._trainer.state.log_history
        if len(history) < self._entries:
            self._written, self._entries = "[]", 0
        for entry in history[self._entries :]:
            comma = ", " if self._entries else ""
            self._written = f"{self._written[:-1]}{comma}{json.dumps(entry)}]"
            self._entries += 1
        return self._written
