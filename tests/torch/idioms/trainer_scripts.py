"""Scripts with transformers' Trainer, as its documentation has them; see `real_members` for how they run."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from real_members import Stage
from torch import nn
from transformers import (
    EarlyStoppingCallback,
    GPT2Config,
    GPT2LMHeadModel,
    PrinterCallback,
    TrainerCallback,
    TrainingArguments,
)

from offcut.torch.elastic_parts.current_training import current
from offcut.torch.integrations.world_of_one import in_job
from offcut.torch.transformers import Trainer

#: What a Trainer measures, which differs from run to run.
MEASURED = ("_runtime", "_per_second", "_time")


class At(TrainerCallback):
    """Lets the test stop this worker at the beginning of a step."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.seen: list[int] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if in_job():
            self.stage.at("step", current("at").training)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.seen.append(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self.stage.note("logged", state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self.stage.note("saved", state.global_step)


class Line(nn.Module):
    """A model that is not transformers' own: double precision, and a loss that is a mean over samples."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        out = self.net(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


def rows(count: int, seed: int) -> list[dict[str, Any]]:
    x = torch.randn(count, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return [{"x": row, "labels": row.sum(0, keepdim=True)} for row in x]


def texts(count: int, seed: int) -> list[dict[str, Any]]:
    """Texts of different lengths, padded; padding does not count."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        ids = torch.randint(0, 32, (12,), generator=random) // 2 * 2
        length = int(torch.randint(4, 13, (), generator=random))
        labels = ids.clone()
        labels[length:] = -100
        found.append({"input_ids": ids, "labels": labels, "attention_mask": (torch.arange(12) < length).long()})
    return found


def language_model(*, lora: bool) -> nn.Module:
    silent = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    tokens = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    config = GPT2Config(vocab_size=32, n_positions=12, n_embd=16, n_layer=1, n_head=2, **silent, **tokens)
    model = GPT2LMHeadModel(config)
    if not lora:
        return model
    from peft import LoraConfig, get_peft_model

    return get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", r=4, lora_dropout=0.0, target_modules=["c_attn"]))


def die_while_saving(trainer: Trainer, step: int) -> None:
    """Let the member that writes the checkpoint of `step` die in the middle of it."""
    own = trainer.save_model

    def save_model(*args: Any, **options: Any) -> None:
        own(*args, **options)
        if trainer.state.global_step == step and not Path(trainer.args.output_dir, "died").exists():
            Path(trainer.args.output_dir, "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    trainer.save_model = save_model


def error(prediction: Any) -> dict[str, float]:
    return {"error": float(abs(prediction.predictions - prediction.label_ids).mean())}


def trains(
    stage: Stage,
    *,
    text: bool = False,
    lora: bool = False,
    measured: bool = False,
    patience: int = 0,
    out: str = "",
    dies_saving: int = 0,
    resume: str = "",
    **settings: Any,
) -> dict[str, Any]:
    """Train, evaluate and save as the settings say, and return what is left."""
    if not text:
        torch.set_default_dtype(torch.float64)  # also for the losses that the Trainer adds up
    torch.manual_seed(0)
    model = language_model(lora=lora) if text else Line()
    at = At(stage)
    usual = {
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 3,
        "learning_rate": 0.02,
        "optim": "sgd" if text else "adamw_torch",
        "num_train_epochs": 4,
        "logging_steps": 1,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        # In a process that a fork server has made, the default would be that server.
        "dataloader_multiprocessing_context": "fork" if settings.get("dataloader_num_workers") else None,
    }
    make = texts if text else rows
    trainer = Trainer(
        model=model,
        args=TrainingArguments(output_dir=out or tempfile.mkdtemp(), **{**usual, **settings}),
        train_dataset=make(37, 1),
        eval_dataset=make(11, 2),
        compute_metrics=error if measured else None,
        callbacks=[at, *([EarlyStoppingCallback(patience)] if patience else [])],
    )
    trainer.remove_callback(PrinterCallback)
    if dies_saving:
        die_while_saving(trainer, dies_saving)
    result = trainer.train(resume_from_checkpoint=resume or None)
    stage.note("steps", at.seen)
    if in_job():
        stage.note("sent", sorted(current("the end").state.tree()["model"]))
    log = [
        {name: value for name, value in entry.items() if not name.endswith(MEASURED)}
        for entry in trainer.state.log_history
    ]
    if out and trainer.is_world_process_zero():
        trainer.save_model(str(Path(out) / "final"))
    return {
        "parameters": [] if text else [value.flatten().tolist() for value in model.state_dict().values()],
        "log": log,
        "loss": result.training_loss,
        "steps": result.global_step,
        "evaluated": trainer.evaluate()["eval_loss"],
        "best": trainer.state.best_metric,
        "best_checkpoint": str(trainer.state.best_model_checkpoint).rpartition("/")[2],
    }


class Alone:
    """In the place of a Stage where no test listens."""

    def at(self, *_: Any) -> None:
        pass

    def note(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    trains(Alone(), **json.loads(sys.argv[1]))  # type: ignore[arg-type]
