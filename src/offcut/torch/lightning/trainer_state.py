"""What belongs to the training's state of a Trainer besides its model, optimizers and schedulers."""

from __future__ import annotations

import builtins
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loops import _Loop
from lightning.pytorch.loops.progress import _BaseProgress
from lightning.pytorch.trainer.connectors.logger_connector.result import _Metadata, _ResultMetric, _Sync

from offcut.torch.lightning.logged_values import LoggedValues

#: The settings of a logged value that are plain values.
_SETTINGS = (
    "fx",
    "name",
    "prog_bar",
    "logger",
    "on_step",
    "on_epoch",
    "enable_graph",
    "add_dataloader_idx",
    "dataloader_idx",
    "metric_attribute",
)
_METRICS = ("_callback_metrics", "_logged_metrics", "_progress_bar_metrics")
_PLACE = ("_first_loop_iter", "_current_fx")


class TrainerState:
    """The Trainer's counters, callbacks, logged values and places of its log files. Has `state_dict`.

    Args:
        trainer: the Trainer.
        logged: what its module logs in training steps.
    """

    #: Members need not have the same: what a script logs or counts may depend on the clock.
    not_compared = ("callbacks", "results", "metrics", "log files")

    def __init__(self, trainer: Trainer, logged: LoggedValues) -> None:
        self._trainer = trainer
        self._logged = logged
        #: How many passes over validation loaders have drawn from torch's generator in this data epoch.
        self.draws = 0

    def counters(self) -> dict[str, Any]:
        """Return the states of the loops' counters, by name."""
        return {name: item.state_dict() for name, item in _counters(self._trainer.fit_loop).items()}

    def load_counters(self, state: dict[str, Any]) -> None:
        """Set the loops' counters.

        Args:
            state: what `counters` returned.
        """
        for name, item in _counters(self._trainer.fit_loop).items():
            item.load_state_dict(state[name])

    def state_dict(self) -> dict[str, Any]:
        """Return the state; its tensors are the living ones."""
        trainer = self._trainer
        connector, epoch_loop = trainer._logger_connector, trainer.fit_loop.epoch_loop
        datamodule = getattr(trainer, "datamodule", None)
        return {
            "counters": self.counters(),
            "stepped": epoch_loop._batches_that_stepped,
            "stops": trainer.should_stop,
            "draws": self.draws,
            "logged names": list(self._logged.names),
            "precision": trainer.precision_plugin.state_dict(),
            "data module": datamodule.state_dict() if datamodule is not None else {},
            "callbacks": {item.state_key: item.state_dict() for item in trainer.callbacks},
            "results": {name: _saved(item) for name, item in epoch_loop._results.items() if item.is_tensor},
            "metrics": {name: dict(getattr(connector, name)) for name in _METRICS}
            | {name: getattr(connector, name) for name in _PLACE},
            "log files": [getattr(item, "version", None) for item in trainer.loggers],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the Trainer to a state that `state_dict` returned."""
        trainer = self._trainer
        connector, epoch_loop = trainer._logger_connector, trainer.fit_loop.epoch_loop
        self.load_counters(state["counters"])
        epoch_loop._batches_that_stepped = state["stepped"]
        trainer.should_stop = state["stops"]
        self.draws = state["draws"]
        self._logged.names[:] = state["logged names"]
        if state["precision"]:
            trainer.precision_plugin.load_state_dict(state["precision"])
        if state["data module"]:
            trainer.datamodule.load_state_dict(state["data module"])
        for item in trainer.callbacks:
            own = state["callbacks"].get(item.state_key)
            if own:
                if "dirpath" in own:  # a ModelCheckpoint takes only the state of its own folder
                    item.dirpath = own["dirpath"]
                item.load_state_dict(own)
        self._load_results(state["results"])
        for name in _METRICS:
            setattr(connector, name, dict(state["metrics"][name]))
        for name in _PLACE:
            setattr(connector, name, state["metrics"][name])
        for item, version in zip(trainer.loggers, state["log files"], strict=True):
            if version is not None and getattr(item, "_version", version) != version:
                item._version, item._experiment = version, None

    def _load_results(self, saved: dict[str, Any]) -> None:
        results = self._trainer.fit_loop.epoch_loop._results
        for name in [name for name, item in results.items() if item.is_tensor and name not in saved]:
            del results[name]
        for name, own in saved.items():
            if name not in results:
                results[name] = _ResultMetric(self._settings(own), is_tensor=True)
            item = results[name]
            item.value, item._forward_cache, item.has_reset = own["value"], own["step"], own["unused"]
            if own["samples"] is not None:
                item.cumulated_batch_size = own["samples"]
            item._computed = None

    def _settings(self, own: dict[str, Any]) -> _Metadata:
        module, _, function = own["reduced by"].rpartition(".")
        reduce_fx = getattr(torch if module == "torch" else builtins, function)
        meta = _Metadata(**own["settings"], reduce_fx=reduce_fx)
        everywhere, first_only = own["sync"]
        meta.sync = _Sync(_should=everywhere, fn=self._trainer.strategy.reduce, rank_zero_only=first_only)
        return meta


def _counters(loop: _Loop, prefix: str = "") -> dict[str, _BaseProgress]:
    found: dict[str, _BaseProgress] = {}
    for name, item in vars(loop).items():
        if isinstance(item, _BaseProgress):
            found[prefix + name] = item
        elif isinstance(item, _Loop):
            found |= _counters(item, f"{prefix}{name}.")
    return found


def _saved(item: Any) -> dict[str, Any]:
    meta = item.meta
    by_torch = getattr(torch, meta.reduce_fx.__name__, None) is meta.reduce_fx
    return {
        "settings": {name: getattr(meta, name) for name in _SETTINGS},
        "reduced by": f"{'torch' if by_torch else 'builtins'}.{meta.reduce_fx.__name__}",
        "sync": [meta.sync.should, meta.sync.rank_zero_only],
        "value": item.value,
        "samples": getattr(item, "cumulated_batch_size", None),
        "step": item._forward_cache,
        "unused": item.has_reset,
    }
