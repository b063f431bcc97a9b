"""A generative adversarial network with BatchNorm learns to draw handwritten digits.

For each batch the discriminator is updated by real and by generated images, and then the generator by what the
discriminator says of the same generated images. Each has an optimizer of its own.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="Learn to draw handwritten digits.")
parser.add_argument("--epochs", type=int, default=15)
parser.add_argument("--batch", type=int, default=64, help="images per update")
parser.add_argument("--noise", type=int, default=16, help="random numbers from which an image is made")
parser.add_argument("--features", type=int, default=16)
parser.add_argument("--lr", type=float, default=2e-3)
arguments = parser.parse_args()

torch.manual_seed(0)
images = torch.Tensor(load_digits().images).unsqueeze(1) / 8 - 1
loader = DataLoader(TensorDataset(images), arguments.batch, shuffle=True, drop_last=True)

features = arguments.features
generator = nn.Sequential(
    nn.ConvTranspose2d(arguments.noise, 4 * features, 2, bias=False),
    nn.BatchNorm2d(4 * features),
    nn.ReLU(),
    nn.ConvTranspose2d(4 * features, 2 * features, 4, stride=2, padding=1, bias=False),
    nn.BatchNorm2d(2 * features),
    nn.ReLU(),
    nn.ConvTranspose2d(2 * features, 1, 4, stride=2, padding=1),
    nn.Tanh(),
)
discriminator = nn.Sequential(
    nn.Conv2d(1, 2 * features, 4, stride=2, padding=1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(2 * features, 4 * features, 4, stride=2, padding=1, bias=False),
    nn.BatchNorm2d(4 * features),
    nn.LeakyReLU(0.2),
    nn.Conv2d(4 * features, 1, 2),
    nn.Flatten(0),
)
for module in (*generator.modules(), *discriminator.modules()):
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.05)
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=arguments.lr, betas=(0.5, 0.999))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=arguments.lr, betas=(0.5, 0.999))
loss_fn = nn.BCEWithLogitsLoss()


def noise(rows):
    """Return the random numbers from which images are made."""
    return torch.randn(rows, arguments.noise, 1, 1)


for epoch in range(arguments.epochs):
    for (real,) in loader:
        ones, zeros = real.new_ones(len(real)), real.new_zeros(len(real))
        fake = generator(noise(len(real)))
        optimizer_d.zero_grad()
        loss_d = loss_fn(discriminator(real), ones) + loss_fn(discriminator(fake.detach()), zeros)
        loss_d.backward()
        optimizer_d.step()
        optimizer_g.zero_grad()
        loss_g = loss_fn(discriminator(fake), ones)
        loss_g.backward()
        optimizer_g.step()
    print(f"epoch {epoch}: loss of both {(loss_d + loss_g).item():.6f}")

generator.eval()
with torch.no_grad():
    drawn = generator(noise(6))[:, 0]
for row in range(8):
    print("  ".join("".join(" .:*#"[int(2.49 * (value + 1))] for value in image[row].tolist()) for image in drawn))
