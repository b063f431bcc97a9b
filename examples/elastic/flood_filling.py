"""A flood-filling network segments one of two tubes: it looks at a small field of view, and moves on along the tube.

The input of the network is the image in the field of view and the mask so far; its output is added to the mask. Where
the mask is confident at a face of the field of view, the field of view moves there.
"""

import argparse
import math
from collections import deque

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import offcut.torch

parser = argparse.ArgumentParser(description="Learn to follow one of two tubes.")
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch", type=int, default=16, help="seeds per update")
parser.add_argument("--depth", type=int, default=3, help="convolution modules of the network")
parser.add_argument("--features", type=int, default=8, help="channels of the network")
parser.add_argument("--lr", type=float, default=1e-2)
arguments = parser.parse_args()

FIELD, DELTA = 7, 2  # voxels on a side of the field of view, and how far it moves
INSIDE, OUTSIDE, MOVE = (math.log(p / (1 - p)) for p in (0.95, 0.05, 0.9))  # logits: seed, unknown, move from here on
FACES = [tuple(sign * DELTA * (axis == i) for i in range(3)) for axis in range(3) for sign in (-1, 1)]


class Residual(nn.Module):
    """Adds two convolutions to its input."""

    def __init__(self, features):
        super().__init__()
        self.first = nn.Conv3d(features, features, 3, padding=1)
        self.second = nn.Conv3d(features, features, 3, padding=1)

    def forward(self, x):
        return x + self.second(functional.relu(self.first(functional.relu(x))))


class FloodFillingNetwork(nn.Module):
    """Returns what is to be added to the mask's logits in the field of view."""

    def __init__(self, depth, features):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv3d(2, features, 3, padding=1), nn.ReLU(), nn.Conv3d(features, features, 3, padding=1)
        )
        self.residuals = nn.Sequential(*[Residual(features) for _ in range(depth - 1)])
        self.last = nn.Conv3d(features, 1, 1)

    def forward(self, image, mask):
        x = self.residuals(self.first(torch.stack([image, mask], dim=1)))
        return self.last(functional.relu(x)).squeeze(1)


def two_tubes(length, generator):
    """Return an image with two tubes and noise, and the tubes' masks, as [length, 24, 24] and [2, length, 24, 24]."""
    phase, wave, turn = torch.rand(3, generator=generator) * torch.tensor([6.3, 0.15, 6.3])
    z, y, x = torch.meshgrid(torch.arange(length), torch.arange(24), torch.arange(24), indexing="ij")
    masks = []
    for side in (-1, 1):
        middle_y = 11.5 + 2 * torch.sin(phase + (0.1 + wave) * z) + side * 4 * torch.cos(turn)
        middle_x = 11.5 + 2 * torch.cos(phase + (0.1 + wave) * z) + side * 4 * torch.sin(turn)
        masks.append((y - middle_y) ** 2 + (x - middle_x) ** 2 < 2.5**2)
    image = torch.stack(masks).any(0) + 0.2 * torch.randn(z.shape, generator=generator) - 0.5
    return image, torch.stack(masks)


def field(volume, corner):
    """Return the field of view that begins at `corner` of the last three dimensions of `volume`."""
    return volume[(..., *(slice(start, start + FIELD) for start in corner))]


def seeds(volumes, generator):
    """Return images and masks around voxels in tubes, large enough for one move in each direction."""
    side = FIELD + 2 * DELTA
    images, masks = [], []
    for _ in range(volumes):
        image, tubes = two_tubes(side + 9, generator)
        image, tubes = functional.pad(image, [4] * 4), functional.pad(tubes, [4] * 4)
        for tube in tubes:
            inside = tube[side // 2 : -(side // 2)].nonzero()
            z, y, x = (inside[torch.randint(len(inside), (), generator=generator)]).tolist()
            crop = (..., slice(z, z + side), *(slice(middle - side // 2, middle + side // 2 + 1) for middle in (y, x)))
            images.append(image[crop])
            masks.append(tube[crop].to(image.dtype))
    return TensorDataset(torch.stack(images), torch.stack(masks))


def visit(image, mask, target, corner):
    """Let the network see one field of view of each sample; update the masks, return the sum of the voxels' losses."""
    logits = field(mask, corner) + model(field(image, corner), field(mask, corner))
    field(mask, corner).copy_(logits.detach())
    losses = functional.binary_cross_entropy_with_logits(logits, field(target, corner), reduction="none")
    return losses.flatten(1).mean(1).sum()


def train_on(image, target):
    """Return the mean loss over all fields of view that the samples visit, and how many these are."""
    mask = torch.full_like(image, OUTSIDE)
    centre = FIELD // 2 + DELTA
    mask[:, centre, centre, centre] = INSIDE
    total, visits = visit(image, mask, target, (DELTA, DELTA, DELTA)), len(image)
    for face in FACES:
        at = tuple(centre + step for step in face)
        moving = (mask[(slice(None), *at)] >= MOVE).nonzero().squeeze(1)
        if len(moving):
            moved = mask[moving]
            total = total + visit(image[moving], moved, target[moving], tuple(DELTA + step for step in face))
            visits += len(moving)
    return total / visits, visits


@torch.no_grad()
def flood(image, seed):
    """Return the mask that grows from `seed`."""
    mask = torch.full_like(image, OUTSIDE)
    mask[seed] = INSIDE
    queue, seen = deque([seed]), {seed}
    while queue:
        middle = queue.popleft()
        corner = [place - FIELD // 2 for place in middle]
        if min(corner) < 0 or any(start + FIELD > size for start, size in zip(corner, image.shape, strict=True)):
            continue
        seen_image, seen_mask = field(image, corner)[None], field(mask, corner)[None]
        field(mask, corner).copy_((seen_mask + model(seen_image, seen_mask))[0])
        for face in FACES:
            place = tuple(a + b for a, b in zip(middle, face, strict=True))
            inside = all(0 <= i < size for i, size in zip(place, image.shape, strict=True))
            if inside and place not in seen and mask[place] >= MOVE:
                seen.add(place)
                queue.append(place)
    return mask >= 0


torch.manual_seed(0)
loader = DataLoader(seeds(64, torch.Generator().manual_seed(1)), arguments.batch, shuffle=True)
model = FloodFillingNetwork(arguments.depth, arguments.features)
print(f"{sum(p.numel() for p in model.parameters()):,} parameters")
optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader)

for epoch in offcut.torch.epochs(arguments.epochs):
    for image, target in loader:
        loss, visits = train_on(image, target)
        offcut.torch.weight_by(visits)
        offcut.torch.report_loss(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if offcut.torch.once():
        print(f"epoch {epoch}: loss {offcut.torch.last_loss():.6f}")

if offcut.torch.once():
    image, tubes = two_tubes(48, torch.Generator().manual_seed(2))
    middle = tubes[0, 24].nonzero().double().mean(0).round().long().tolist()
    filled = flood(image, (24, *middle))
    for number, tube in enumerate(tubes):
        print(f"tube {number}: {(filled & tube).sum() / tube.sum():.1%} filled")
