"""A small GPT learns to write characters: a loop over steps, batches of random excerpts, gradients accumulated."""

import argparse
import math

import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from torch import nn
from torch.nn import functional

import offcut.torch

parser = argparse.ArgumentParser(description="Learn to write like the descriptions of scikit-learn's datasets.")
parser.add_argument("--max-iters", type=int, default=120)
parser.add_argument("--eval-interval", type=int, default=40)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--accumulate", type=int, default=2, help="batches per update")
parser.add_argument("--block-size", type=int, default=32, help="characters in an excerpt")
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--lr", type=float, default=4e-3)
parser.add_argument("--out", default="nanogpt.pt", help="file for the trained model")
arguments = parser.parse_args()
WARMUP_ITERS, MIN_LR, WEIGHT_DECAY, GRAD_CLIP, HEADS, EVAL_ITERS = 10, arguments.lr / 10, 0.1, 1.0, 4, 10

torch.manual_seed(1337)

datasets = load_digits, load_iris, load_wine, load_breast_cancer, load_diabetes
text = "".join(load().DESCR for load in datasets)
alphabet = sorted(set(text))
letters = torch.tensor([alphabet.index(letter) for letter in text])
train_data, val_data = letters[:-2000], letters[-2000:]


def excerpts(data, generator=None):
    """Return excerpts from random places, and what follows each of their letters."""
    starts = torch.randint(len(data) - arguments.block_size, (arguments.batch_size,), generator=generator)
    x = torch.stack([data[i : i + arguments.block_size] for i in starts])
    y = torch.stack([data[i + 1 : i + 1 + arguments.block_size] for i in starts])
    return x, y


def get_batch():
    """Return a batch of the training text."""
    return excerpts(train_data)


class Block(nn.Module):
    """Attention to the letters before, and a perceptron."""

    def __init__(self, width):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        rows, length, width = x.shape
        heads = self.attention(self.norm_1(x)).view(rows, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.projection(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norm_2(x))


class GPT(nn.Module):
    """Predicts the next letter, and returns the loss where the letters are given."""

    def __init__(self, letters, width, layers):
        super().__init__()
        self.letter, self.place = nn.Embedding(letters, width), nn.Embedding(arguments.block_size, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)
        self.letter.weight = self.head.weight
        for weight in (self.head.weight, self.place.weight):
            nn.init.normal_(weight, std=0.02)

    def forward(self, x, targets):
        x = self.letter(x) + self.place(torch.arange(x.shape[1]))
        logits = self.head(self.norm(self.blocks(x)))
        return logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def configure_optimizers(self):
        """Return AdamW, which decays matrices only."""
        matrices = [p for p in self.parameters() if p.dim() >= 2]
        others = [p for p in self.parameters() if p.dim() < 2]
        groups = [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=arguments.lr, betas=(0.9, 0.99))


def get_lr(step):
    """Return the learning rate of a step: it rises linearly, and falls by a cosine."""
    if step < WARMUP_ITERS:
        return arguments.lr * (step + 1) / (WARMUP_ITERS + 1)
    past = (step - WARMUP_ITERS) / max(1, arguments.max_iters - WARMUP_ITERS)
    return MIN_LR + 0.5 * (1 + math.cos(math.pi * past)) * (arguments.lr - MIN_LR)


@torch.no_grad()
def estimate_loss():
    """Return the mean loss over some excerpts of the training text, and of the text that is held out."""
    model.eval()
    generator = torch.Generator().manual_seed(0)
    means = []
    for data in (train_data, val_data):
        losses = [model(*excerpts(data, generator))[1].item() for _ in range(EVAL_ITERS)]
        means.append(sum(losses) / len(losses))
    model.train()
    return means


model = GPT(len(alphabet), arguments.width, arguments.layers)
optimizer = model.configure_optimizers()
model, optimizer, get_batch = offcut.torch.elastic(model, optimizer, get_batch)

for step in offcut.torch.steps(arguments.max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(step)
    if step % arguments.eval_interval == 0 and offcut.torch.once():
        train_loss, val_loss = estimate_loss()
        print(f"step {step}: train loss {train_loss:.4f}, val loss {val_loss:.4f}")
    for micro_step in range(arguments.accumulate):
        x, y = get_batch()
        logits, loss = model(x, y)
        (loss / arguments.accumulate).backward()
    offcut.torch.report_loss(loss)
    offcut.torch.reduce_gradients()
    nn.utils.clip_grad_norm_(model.parameters(), GRAD_CLIP)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 10 == 0 and offcut.torch.once():
        print(f"iter {step}: loss {offcut.torch.last_loss():.6f}")

if offcut.torch.once():
    torch.save(model.state_dict(), arguments.out)
