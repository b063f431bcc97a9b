"""The files of a Trainer's loggers, which the first member writes, and after it whichever member is first then."""

from __future__ import annotations

import csv
import os
from typing import Any

from lightning.fabric.loggers.csv_logs import CSVLogger
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch import Trainer
from lightning.pytorch.loggers.utilities import _log_hyperparams


def write_no_logs() -> None:
    """Let no logger of this process write: it is not known yet which member it will be."""
    rank_zero_only.rank = 1


def write_logs(trainer: Trainer, rank: int, *, begun: bool) -> None:
    """Let the loggers of this process write if it is the first member.

    Args:
        trainer: the Trainer.
        rank: this member's number.
        begun: whether other members, or an earlier run, have written before.
    """
    was, rank_zero_only.rank = rank_zero_only.rank, rank
    if rank != 0 or was == 0:
        return
    for logger in trainer.loggers:
        if begun and isinstance(logger, CSVLogger) and logger._experiment is None:
            _go_on(logger)
    if not begun and trainer.enable_autolog_hparams:
        _log_hyperparams(trainer)


def _go_on(logger: Any) -> None:
    """Open the file of a CSVLogger without losing what is in it: the logger removes a file that it finds."""
    files, path = logger._fs, os.path.join(logger.log_dir, "metrics.csv")
    aside = f"{path}.kept"
    if files.isfile(path):
        files.mv(path, aside)
    writer = logger.experiment
    if files.isfile(aside):
        files.mv(aside, path)
        with files.open(path, "r", newline="") as file:
            writer.metrics_keys = next(csv.reader(file), [])
