"""Training scripts with Lightning's Trainer; see `real_members` for how they run."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from idiom_scripts import BATCH, data, network, numbers
from lightning.fabric import Fabric
from lightning.pytorch.callbacks import (
    Callback,
    EarlyStopping,
    EMAWeightAveraging,
    LearningRateMonitor,
    ModelCheckpoint,
    Timer,
)
from lightning.pytorch.loggers import CSVLogger
from real_members import Stage
from torch import nn
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

import offcut.torch
from offcut.torch.elastic_parts import current_training
from offcut.torch.lightning import OffcutStrategy, Trainer

warnings.filterwarnings("ignore")


def member() -> Any:
    """What `Stage.at` asks for the steps and the connection; None in a script by itself."""
    return current_training.current("at").training


class Module(pl.LightningModule):
    """A network with a schedule per step, or per epoch, that logs its loss."""

    def __init__(self, stage: Stage, *, schedule: str = "step", in_job: bool = True) -> None:
        super().__init__()
        self.net = network()
        self.stage, self.schedule, self.in_job = stage, schedule, in_job

    def loss(self, batch: Any) -> torch.Tensor:
        x, y = batch
        return (self.net(x) - y).square().mean()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.in_job:
            self.stage.at("step", member())
        loss = self.loss(batch)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        self.log("largest", batch[0].max(), on_step=False, on_epoch=True, reduce_fx="max")
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        if self.in_job and not self.trainer.sanity_checking:
            self.stage.at("validation", member())
        self.log("val_loss", self.loss(batch))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)
        if self.schedule == "plateau":
            scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.1)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"}}
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.97)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.schedule}}


class Heard(Callback):
    """Notes what a Trainer tells its callbacks, and keeps it with the training."""

    def __init__(self) -> None:
        self.steps: list[list[float]] = []
        self.epochs: list[list[float]] = []

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        self.steps.append([trainer.global_step, rate, float(trainer.callback_metrics.get("train_loss_step", 0.0))])

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        metrics = trainer.callback_metrics
        found = [float(metrics.get(name, 0.0)) for name in ("train_loss_epoch", "largest", "val_loss")]
        self.epochs.append([trainer.current_epoch, trainer.global_step, *found])
        if module.in_job:
            module.stage.at("epoch end", member())

    def state_dict(self) -> dict[str, Any]:
        return {"steps": [list(row) for row in self.steps], "epochs": [list(row) for row in self.epochs]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps, self.epochs = [list(row) for row in state["steps"]], [list(row) for row in state["epochs"]]


def trains(
    stage: Stage,
    *,
    folder: str,
    samples: int = 37,
    schedule: str = "step",
    shuffles: bool = True,
    stops: bool = False,
    options: dict[str, Any] | None = None,
    saved: str | None = None,
) -> dict[str, Any]:
    """Fit, and return what the training has come to."""
    in_job = stage.name != "alone"
    pl.seed_everything(3, verbose=False)
    module = Module(stage, schedule=schedule, in_job=in_job)
    place = Path(folder) / ("job" if in_job else "alone")
    heard = Heard()
    best = ModelCheckpoint(monitor="val_loss", filename="best-{step}")
    callbacks = [heard, best, *([EarlyStopping("val_loss", patience=1, min_delta=0.03)] if stops else [])]
    settings = {"max_epochs": 5, "log_every_n_steps": 1, **(options or {})}
    trainer = Trainer(
        accelerator="cpu",
        callbacks=callbacks,
        logger=CSVLogger(place, flush_logs_every_n_steps=1),
        default_root_dir=place,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
    assert isinstance(trainer.strategy, OffcutStrategy) == in_job
    loader = DataLoader(data(samples), BATCH, shuffle=shuffles)
    trainer.fit(module, loader, DataLoader(data(11), 3), ckpt_path=saved)
    return {
        "parameters": numbers(module.net),
        "rate": trainer.optimizers[0].param_groups[0]["lr"],
        "steps": [number for row in heard.steps for number in row],
        "epochs": [number for row in heard.epochs for number in row],
        "global step": trainer.global_step,
        "epoch": trainer.current_epoch,
        "best": Path(best.best_model_path).name,
        "best score": float(best.best_model_score),
        "drawn": torch.rand(1).item(),
    }


class Adversarial(pl.LightningModule):
    """Two networks with an optimizer each; the judge is updated twice and clipped, the maker in every second step."""

    def __init__(self, stage: Stage, *, in_job: bool) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.maker, self.judge = network(), network()
        self.stage, self.in_job = stage, in_job

    def training_step(self, batch: Any, batch_idx: int) -> None:
        if self.in_job:
            self.stage.at("step", member())
        x, y = batch
        for_maker, for_judge = self.optimizers()
        for _ in range(2):
            self.toggle_optimizer(for_judge)
            loss = ((self.judge(x) - y).square() + self.judge(x + self.maker(x).detach())).mean()
            for_judge.zero_grad()
            self.manual_backward(loss)
            self.clip_gradients(for_judge, gradient_clip_val=0.5)
            for_judge.step()
            self.untoggle_optimizer(for_judge)
        if batch_idx % 2:
            self.toggle_optimizer(for_maker)
            loss = (self.judge(x + self.maker(x)) - self.judge(x)).square().mean()
            for_maker.zero_grad()
            self.manual_backward(loss)
            for_maker.step()
            self.untoggle_optimizer(for_maker)
        self.log("judge", loss, on_step=True, on_epoch=True)
        for schedule in self.lr_schedulers():
            schedule.step()

    def configure_optimizers(self) -> Any:
        optimizers = [torch.optim.Adam(net.parameters(), 0.05) for net in (self.maker, self.judge)]
        return optimizers, [torch.optim.lr_scheduler.ExponentialLR(item, 0.9) for item in optimizers]


def quiet(**options: Any) -> Trainer:
    settings = {"logger": False, "enable_checkpointing": False, **options}
    return Trainer(accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, **settings)


def adversarial(stage: Stage, *, epochs: int = 5) -> dict[str, Any]:
    module = Adversarial(stage, in_job=stage.name != "alone")
    trainer = quiet(max_epochs=epochs)
    pl.seed_everything(3, verbose=False)
    trainer.fit(module, DataLoader(data(37), BATCH, shuffle=True))
    return {
        "parameters": numbers(module),
        "rates": [item.param_groups[0]["lr"] for item in trainer.optimizers],
        "global step": trainer.global_step,
        "logged": float(trainer.callback_metrics["judge_epoch"]),
    }


class Mistaken(Module):
    """Does what members cannot do together."""

    def __init__(self, stage: Stage, mistake: str) -> None:
        super().__init__(stage)
        self.accuracy = MeanMetric()
        self.mistake = mistake

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.mistake == "metric":
            self.accuracy(batch[0])
            self.log("accuracy", self.accuracy)
        return None if self.mistake == "none" else self.loss(batch)


def mistaken(stage: Stage, *, mistake: str) -> None:
    module = Mistaken(stage, mistake)
    options = {"val_check_interval": "00:00:01:00", "check_val_every_n_epoch": None} if mistake == "clock" else {}
    loader: Any = DataLoader(data(37), BATCH)
    loaders = [loader, DataLoader(data(37), BATCH)] if mistake == "several" else loader
    if mistake == "sharded":
        options["strategy"] = "fsdp"
    trainer = quiet(max_epochs=1, **options)
    trainer.fit(module, loaders, loader)
    if mistake == "twice":
        quiet(max_epochs=1).fit(module, loaders, loader)


def with_fabric(stage: Stage) -> dict[str, Any]:
    """A loop of the script's own, with Fabric's backward and its precision."""
    fabric = Fabric(accelerator="cpu", devices=1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader: Any = DataLoader(data(37), BATCH, shuffle=True)
    model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)
    model, optimizer = fabric.setup(model, optimizer)
    for _ in offcut.torch.epochs(5):
        for x, y in loader:
            if stage.name != "alone":
                stage.at("step", member())
            optimizer.zero_grad()
            fabric.backward((model(x) - y).square().mean())
            offcut.torch.reduce_gradients()
            fabric.clip_gradients(model, optimizer, max_norm=0.5)
            optimizer.step()
    return {"parameters": numbers(model), "steps": member().steps}


class Samples(pl.LightningDataModule):
    """Training and validation samples, loaded by processes."""

    def train_dataloader(self) -> Any:
        return DataLoader(data(37), BATCH, shuffle=True, num_workers=1, multiprocessing_context="fork")

    def val_dataloader(self) -> Any:
        return DataLoader(data(11), 3, num_workers=1, multiprocessing_context="fork")

    def test_dataloader(self) -> Any:
        return DataLoader(data(13), 4)


class Full(pl.LightningModule):
    """What else modules do: BatchNorm, numbers of all members, metric objects in a validation, a one-cycle schedule."""

    def __init__(self, stage: Stage, *, in_job: bool) -> None:
        super().__init__()
        self.net = network(nn.BatchNorm1d(6, dtype=torch.float64))
        self.error = MeanMetric()
        self.stage, self.in_job = stage, in_job

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        if self.in_job:
            self.stage.at("step", member())
        x, y = batch
        errors = (self.net(x) - y).square()
        self.log("synced", errors.mean(), sync_dist=True, on_step=True, on_epoch=True)
        gathered = self.all_gather(x.sum())
        self.log("sum", gathered.sum(), reduce_fx="max")
        self.log_dict({"a": x[:, 0].mean(), "b": x[:, 1].mean()}, on_step=False, on_epoch=True)
        return {"loss": errors.mean(), "errors": errors.detach()}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.error((self.net(x) - y).square())
        self.log("error", self.error, prog_bar=True)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        x, y = batch
        self.log("test", (self.net(x) - y).square().mean())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def full(stage: Stage, *, folder: str) -> dict[str, Any]:
    """A Trainer with many callbacks, and a test of the best checkpoint afterwards."""
    in_job = stage.name != "alone"
    place = Path(folder) / ("job" if in_job else "alone")
    pl.seed_everything(3, workers=True, verbose=False)
    module = Full(stage, in_job=in_job)
    average = EMAWeightAveraging(decay=0.9)
    best = ModelCheckpoint(monitor="error", save_top_k=2, save_last=True)
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=5,
        sync_batchnorm=True,
        callbacks=[
            average,
            best,
            LearningRateMonitor("step"),
            EarlyStopping("synced_epoch", check_on_train_epoch_end=True),
            Timer("00:01:00:00"),
        ],
        logger=CSVLogger(place),
        log_every_n_steps=2,
        val_check_interval=2,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, datamodule=Samples())
    (tested,) = trainer.test(module, datamodule=Samples(), ckpt_path="best", verbose=False)
    return {
        "average": numbers(module),
        "test": tested["test"],
        "metrics": [float(trainer.callback_metrics[name]) for name in ("test",)],
        "best": [float(score) for score in best.best_k_models.values()],
        "global step": trainer.global_step,
    }
