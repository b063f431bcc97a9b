"""Learn to read handwritten digits with Lightning: a schedule, a validation per epoch, the best checkpoint, a log."""

import argparse
import os
from pathlib import Path

import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

import offcut.torch.lightning as L


class DigitReader(L.LightningModule):
    """A small convolutional network."""

    def __init__(self, lr: float, steps: int) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, stride=2),
            nn.GroupNorm(4, 32),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 10),
        )
        self.loss_fn = nn.CrossEntropyLoss()
        self.accuracy = MulticlassAccuracy(10, average="micro")

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = self.loss_fn(self.net(x), y)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        x, y = batch
        logits = self.net(x)
        self.accuracy(logits, y)
        self.log("val_loss", self.loss_fn(logits, y))
        self.log("val_accuracy", self.accuracy)

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.lr, self.hparams.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


parser = argparse.ArgumentParser(description="Learn to read handwritten digits.")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch", type=int, default=100, help="samples per update")
parser.add_argument("--lr", type=float, default=1e-2)
parser.add_argument("--out", type=Path, default=Path("digits.pt"), help="file for the trained model")
arguments = parser.parse_args()

L.seed_everything(0)
digits = load_digits()
images = torch.Tensor(digits.images).unsqueeze(1) / 16.0
labels = torch.tensor(digits.target)
training, held_out = TensorDataset(images[:1500], labels[:1500]), TensorDataset(images[1500:], labels[1500:])
loader = DataLoader(training, arguments.batch, shuffle=True)
test_loader = DataLoader(held_out, 50)

best = ModelCheckpoint(monitor="val_accuracy", mode="max")
trainer = L.Trainer(
    max_epochs=arguments.epochs,
    accelerator="cpu",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    callbacks=[best, EarlyStopping("val_loss", patience=5)],
    logger=CSVLogger(arguments.out.parent / "logs"),
    log_every_n_steps=5,
    enable_progress_bar=False,
)
model = DigitReader(arguments.lr, steps=arguments.epochs * len(loader))
trainer.fit(model, loader, test_loader)

if trainer.is_global_zero:
    print(f"{best.best_model_score:.1%} of the held-out digits read right")
    torch.save(torch.load(best.best_model_path)["state_dict"], arguments.out)
