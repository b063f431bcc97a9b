"""Train a small ResNet on generated images: augmentation, a one-cycle schedule, an evaluation, the best model."""

import argparse
import copy
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description="Learn to tell shapes apart.")
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--batch", type=int, default=40, help="images per update")
parser.add_argument("--lr", type=float, default=0.2)
parser.add_argument("--images", type=int, default=480, help="images to train on")
parser.add_argument("--out", type=Path, default=Path("shapes.pt"), help="file for the best model")
arguments = parser.parse_args()

SIZE, SHAPES = 16, ["disc", "ring", "square", "cross", "stripes"]


def draw(shape, x, y, radius):
    """Return where an image has a shape, of which x and y are the distances of each pixel from its centre."""
    distance = (x.square() + y.square()).sqrt()
    return {
        "disc": distance < radius,
        "ring": (distance < radius) & (distance > radius - 2),
        "square": (x.abs() < radius) & (y.abs() < radius),
        "cross": ((x.abs() < 1.5) | (y.abs() < 1.5)) & (distance < radius + 1),
        "stripes": (x.long() % 4 < 2) & (y.abs() < radius),
    }[shape]


class Images(Dataset):
    """Images of shapes in random colours and places, on noise. Those to train on are shifted and mirrored at random."""

    def __init__(self, count, seed, augment):
        numbers = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(len(SHAPES), (count,), generator=numbers)
        self.images = 0.2 * torch.randn(count, 3, SIZE, SIZE, generator=numbers)
        pixels = torch.arange(SIZE)
        for i, label in enumerate(self.labels):
            x, y = torch.randint(5, SIZE - 5, (2,), generator=numbers)
            shape = draw(SHAPES[label], pixels - x, (pixels - y).unsqueeze(1), 3 + 2 * torch.rand(1, generator=numbers))
            self.images[i] += shape * torch.randn(3, 1, 1, generator=numbers).sign()
        self.augment, self.epoch = augment, 0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment:
            # The same in every run: it depends on the epoch and the image alone.
            numbers = torch.Generator().manual_seed(self.epoch * len(self) + index)
            x, y, mirrored = torch.randint(5, (3,), generator=numbers).tolist()
            image = functional.pad(image, (2, 2, 2, 2))[:, y : y + SIZE, x : x + SIZE]
            image = image.flip(2) if mirrored < 2 else image
        return image, self.labels[index]


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.shortcut = nn.Identity()
        if stride > 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        inside = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(x)))))
        return functional.relu(inside + self.shortcut(x))


class Best:
    """The weights that read the held-out images best, and how many they read right."""

    def __init__(self):
        self.accuracy, self.weights = 0.0, {}

    def keep(self, model, accuracy):
        if accuracy > self.accuracy:
            self.accuracy, self.weights = accuracy, copy.deepcopy(model.state_dict())

    def state_dict(self):
        return {"accuracy": self.accuracy, "weights": self.weights}

    def load_state_dict(self, state):
        self.accuracy, self.weights = state["accuracy"], state["weights"]


torch.manual_seed(0)
training, held_out = Images(arguments.images, 1, augment=True), Images(200, 2, augment=False)
loader = DataLoader(training, arguments.batch, shuffle=True)
test_loader = DataLoader(held_out, 50)

model = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1, bias=False),
    nn.BatchNorm2d(8),
    nn.ReLU(),
    Block(8, 8, 2),
    Block(8, 16, 2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, len(SHAPES)),
)
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, arguments.lr, arguments.epochs * len(loader))
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)
best = Best()


def correct(x, y):
    """Return which of the images the model reads right."""
    return model(x).argmax(1) == y


def evaluate():
    """Return the share of the held-out images that the model reads right."""
    model.eval()
    with torch.no_grad():
        accuracy = torch.cat([correct(x, y) for x, y in test_loader]).double().mean().item()
    model.train()
    return accuracy


for epoch in range(arguments.epochs):
    training.epoch = epoch
    for x, y in loader:
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    accuracy = evaluate()
    best.keep(model, accuracy)
    print(f"epoch {epoch}: loss {loss.item():.6f}, {accuracy:.1%} of the held-out images read right")

print(f"{best.accuracy:.1%} at best")
torch.save(best.weights, arguments.out)
