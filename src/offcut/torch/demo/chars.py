"""A character-level transformer learns the source text of Python's own standard library."""

import argparse
import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from offcut.torch import Session

CONTEXT = 64

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=100)
parser.add_argument("--lr", type=float, default=5e-4)
parser.add_argument("--width", type=int, default=64)
arguments = parser.parse_args()

# In double precision, so that the loss can be compared with an undisturbed run's after thousands of steps: members add
# their gradients in another order than one process does, and training magnifies the last bit.
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
library = Path(sysconfig.get_paths()["stdlib"])
text = b"".join((library / name).read_bytes() for name in ("argparse.py", "heapq.py", "textwrap.py"))
letters = torch.tensor([byte if byte < 128 else 0 for byte in text], dtype=torch.long)


class Excerpts(torch.utils.data.Dataset):
    """The excerpts of CONTEXT + 1 characters that begin at a multiple of CONTEXT / 2."""

    def __len__(self):
        return (len(letters) - CONTEXT - 1) // (CONTEXT // 2)

    def __getitem__(self, i):
        start = i * (CONTEXT // 2)
        return letters[start : start + CONTEXT], letters[start + 1 : start + CONTEXT + 1]


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mixing = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mix = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.attend(self.before_attention(x)).chunk(3, dim=-1)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mix(self.before_mixing(x))


class Characters(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.letter, self.place = nn.Embedding(128, width), nn.Parameter(torch.zeros(CONTEXT, width))
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 128))

    def forward(self, x):
        return self.head(self.blocks(self.letter(x) + self.place))


model = Characters(arguments.width)
optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)

with Session(model, optimizer, Excerpts(), global_batch=32, clip_norm=1.0) as session:
    for epoch in session.epochs(arguments.epochs):
        for batch in epoch:
            scores = session.model(batch.x)
            session.step(functional.cross_entropy(scores.flatten(0, 1), batch.y.flatten()))
        if session.once():
            print(f"step {session.steps}, {session.world} members: {session.loss / 0.6931:.3f} bits per character")
