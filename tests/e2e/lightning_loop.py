"""The training of `own_loop.py` by Lightning's Trainer."""

import argparse
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import offcut.torch.lightning as L

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--pace-file", type=Path, help="how long a turn of the loop takes at least, seconds; may change")
arguments = parser.parse_args()


def keep_pace():
    began_s = time.monotonic()
    while arguments.pace_file and (left_s := began_s + float(arguments.pace_file.read_text()) - time.monotonic()) > 0:
        time.sleep(min(left_s, 0.02))


class Module(L.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def training_step(self, batch, batch_idx):
        keep_pace()
        inputs, targets = batch
        loss = (self.model(inputs) - targets).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-3)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 40, 0.8)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
x = torch.randn(500, 12)
dataset = TensorDataset(x, (x.sum(1, keepdim=True) + torch.sin(3 * x[:, :1])).detach())
model = torch.nn.Sequential(torch.nn.Linear(12, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
trainer = L.Trainer(max_epochs=arguments.epochs, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(Module(model), DataLoader(dataset, 48, shuffle=True))
if trainer.is_global_zero:
    print(f"loss {float(trainer.callback_metrics['loss']):.4f}")
