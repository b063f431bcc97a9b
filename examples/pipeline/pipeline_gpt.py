"""A character-level GPT as a pipeline job: cut into stages, each on a node of its own, at any size that has a plan.

    python examples/pipeline/pipeline_gpt.py                     # alone, on a laptop: the whole model on one device
    offcut submit examples/pipeline/pipeline_gpt.toml            # as stages on the idle nodes that there are

The plans in `pipeline_gpt_plans.json` were made by

    cd examples/pipeline
    offcut profile pipeline_gpt.py:build --micro-batch 4,8 -o gpt.json
    offcut plan gpt.json --hardware pipeline_gpt_cluster.toml --devices 1:4 --batch 32 --save plans.json
"""

import argparse
import textwrap
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

CONTEXT, WIDTH, BLOCKS, LETTERS = 16, 32, 6, 128
PLANS = Path(__file__).with_name("pipeline_gpt_plans.json")


class Letters(nn.Module):
    """Embeds every letter and its position."""

    def __init__(self):
        super().__init__()
        self.letter, self.place = nn.Embedding(LETTERS, WIDTH), nn.Parameter(torch.zeros(CONTEXT, WIDTH))

    def forward(self, x):
        return self.letter(x) + self.place


class Block(nn.Module):
    """Attention to earlier characters, then a perceptron."""

    def __init__(self):
        super().__init__()
        self.before_attention, self.before_mixing = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mix = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        query, key, value = (
            part.unflatten(-1, (4, -1)).transpose(1, 2)
            for part in self.attend(self.before_attention(x)).chunk(3, dim=-1)
        )
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).flatten(-2))
        return x + self.mix(self.before_mixing(x))


def build():
    """Build the model: layers in a row, which may be cut between any two. It is the same on every member."""
    torch.manual_seed(0)
    head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, LETTERS))
    return nn.Sequential(Letters(), *(Block() for _ in range(BLOCKS)), head)


def example_inputs(count):
    """Return `count` samples, with which `offcut profile` measures the layers."""
    return torch.zeros(count, CONTEXT, dtype=torch.int64)


class Excerpts(torch.utils.data.Dataset):
    """Pairs of excerpts of a text, the second one letter further on."""

    def __init__(self, text):
        self.letters = torch.tensor([min(ord(letter), LETTERS - 1) for letter in text])

    def __len__(self):
        return (len(self.letters) - 1) // CONTEXT

    def __getitem__(self, i):
        piece = self.letters[i * CONTEXT : (i + 1) * CONTEXT + 1]
        return piece[:-1], piece[1:]


def loss_fn(scores, letters):
    """Return the mean loss over a micro-batch."""
    return functional.cross_entropy(scores.flatten(0, 1), letters.flatten())


def main():
    from offcut.torch.pipeline import PipelineSession

    parser = argparse.ArgumentParser(description="Learn to write like a text.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--double", action="store_true", help="in float64, to compare runs bit by bit (nearly)")
    parser.add_argument("--out", type=Path, help="file for the trained model")
    arguments = parser.parse_args()
    torch.set_default_dtype(torch.float64 if arguments.double else torch.float32)
    # The text is the source of Python's own library, which is on every machine.
    text = Path(textwrap.__file__).read_text()

    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.lr)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 200, 0.8)
    with PipelineSession(model, optimizer, Excerpts(text), loss_fn=loss_fn, plans=PLANS, clip_norm=1.0) as session:
        session.register(schedule)
        for epoch in session.epochs(arguments.epochs):
            for _ in epoch:
                session.step()
                schedule.step()
    if session.once():
        print(f"loss {session.loss:.9f} after {session.steps} steps")
        if arguments.out:
            torch.save(session.whole_model().state_dict(), arguments.out)


if __name__ == "__main__":
    main()
