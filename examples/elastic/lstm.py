"""A language model of characters with an LSTM, whose hidden state is carried from batch to batch.

The text is laid out in columns side by side. Each batch has the next piece of every column, so its hidden state is the
one that the batch before has left; the gradient goes no further back than a piece (truncated backpropagation through
time).
"""

import argparse

import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import offcut.torch

parser = argparse.ArgumentParser(description="Learn to write like the descriptions of scikit-learn's datasets.")
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--columns", type=int, default=16, help="rows of a batch")
parser.add_argument("--length", type=int, default=32, help="characters in a piece")
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--lr", type=float, default=10.0)
parser.add_argument("--clip", type=float, default=0.25, help="greatest norm of the gradient")
arguments = parser.parse_args()


class LanguageModel(nn.Module):
    """Embeds characters, and predicts the next one of each."""

    def __init__(self, letters, hidden):
        super().__init__()
        self.embedding = nn.Embedding(letters, hidden)
        self.lstm = nn.LSTM(hidden, hidden, num_layers=2, batch_first=True)
        self.decoder = nn.Linear(hidden, letters)

    def forward(self, x, hidden):
        output, hidden = self.lstm(self.embedding(x), hidden)
        return self.decoder(output), hidden

    def init_hidden(self, rows):
        zeros = self.embedding.weight.new_zeros(2, rows, self.lstm.hidden_size)
        return zeros, zeros


def in_columns(letters, columns):
    """Return pieces of the text and of what follows each letter; every `columns` of them belong side by side."""
    pieces = (len(letters) - 1) // (columns * arguments.length)
    size = pieces * columns * arguments.length

    def lay_out(text):
        return text.view(columns, pieces, arguments.length).transpose(0, 1).reshape(-1, arguments.length)

    return TensorDataset(lay_out(letters[:size]), lay_out(letters[1 : size + 1]))


torch.manual_seed(0)
datasets = load_digits, load_iris, load_wine, load_breast_cancer, load_diabetes
text = "".join(load().DESCR for load in datasets)
alphabet = sorted(set(text))
letters = torch.tensor([alphabet.index(letter) for letter in text])
training, held_out = in_columns(letters[:12000], arguments.columns), in_columns(letters[12000:], 4)
loader = DataLoader(training, arguments.columns)

model = LanguageModel(len(alphabet), arguments.hidden)
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.25, patience=0)
loss_fn = nn.CrossEntropyLoss()
hidden = offcut.torch.RowState(model.init_hidden(arguments.columns), dim=1)
model, optimizer, loader = offcut.torch.elastic(model, optimizer, loader, state=[scheduler, hidden])


@torch.no_grad()
def validate():
    """Return the mean loss over the held-out text."""
    hidden = model.init_hidden(4)
    losses = []
    for x, y in zip(*(tensor.split(4) for tensor in held_out.tensors), strict=True):
        scores, hidden = model(x, hidden)
        losses.append(loss_fn(scores.flatten(0, 1), y.flatten()).item())
    return sum(losses) / len(losses)


for epoch in offcut.torch.epochs(arguments.epochs):
    hidden.reset()
    for x, y in loader:
        scores, hidden.rows = model(x, hidden.rows)
        loss = loss_fn(scores.flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        offcut.torch.report_loss(loss)
        offcut.torch.reduce_gradients()
        nn.utils.clip_grad_norm_(model.parameters(), arguments.clip)
        optimizer.step()
    validation = validate()
    scheduler.step(validation)
    if offcut.torch.once():
        print(f"epoch {epoch}: loss {offcut.torch.last_loss():.6f}, validation {validation:.6f}")
