"""Two optimisers: a classifier by AdamW, and the centres of its classes by SGD (centre loss, Wen et al., ECCV 2016).

    python examples/session/two_optimizers.py

Give the session both; `session.step` updates both from one reduced gradient, and both move to joiners and into
checkpoints. What they train has to be part of the one `model`: parameters outside it would not move with the job.

What this cannot do today is to update them at different times, as a GAN with five critic steps per generator step
does. Losses that concern different parameters can be added up in one step: `session.backward` once for each, with
`requires_grad_(False)` on the parameters that a loss must not change.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from offcut.torch import Session

parser = argparse.ArgumentParser(description="Learn digits whose features gather around one centre per class.")
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--pull", type=float, default=0.05, help="how much the distance to the centre counts")
arguments = parser.parse_args()

torch.manual_seed(0)
pixels, target = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(pixels, dtype=torch.float32) / 16.0, torch.tensor(target))


class Centred(nn.Module):
    """Features, the classifier on them, and one centre per class."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 16))
        self.head = nn.Linear(16, 10)
        self.centres = nn.Parameter(torch.zeros(10, 16))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.features(x)
        return found, self.head(found)


model = Centred()
classifier = torch.optim.AdamW([*model.features.parameters(), *model.head.parameters()], lr=2e-3)
centres = torch.optim.SGD([model.centres], lr=2.0)
scheduler = torch.optim.lr_scheduler.ExponentialLR(centres, 0.95)

with Session(model, [classifier, centres], data, global_batch=128) as session:
    session.register(scheduler)
    for epoch in session.epochs(arguments.epochs):
        for batch in epoch:
            found, scores = session.model(batch.x)
            distance = (found - model.centres[batch.y]).pow(2).sum(1).mean()
            session.step(nn.functional.cross_entropy(scores, batch.y) + arguments.pull * distance)
        scheduler.step()

if session.once():
    with torch.no_grad():
        found, scores = model(data.tensors[0])
        apart = torch.pdist(model.centres).min()
        off = (found - model.centres[data.tensors[1]]).norm(dim=1).median()
    print(f"loss {session.loss:.4f} after {session.steps} steps")
    print(f"half of the digits are within {off:.2f} of their centre; the two nearest centres are {apart:.2f} apart")
