"""transformers' Trainer for jobs whose nodes come and go: `from offcut.torch.transformers import Trainer`.

Import it in place of transformers' own; the rest of the script stays. Outside of a job it is transformers' own.
"""

from __future__ import annotations

import transformers

from offcut.torch.integrations.elastic_trainer import Trainer
from offcut.torch.integrations.world_of_one import hide_launcher

__all__ = ["Seq2SeqTrainer", "Trainer"]

hide_launcher()


class Seq2SeqTrainer(Trainer, transformers.Seq2SeqTrainer):
    """transformers' Seq2SeqTrainer; see `Trainer`."""
