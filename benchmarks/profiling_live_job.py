"""A training whose throughput is decided here: every step sleeps as long as its scaling curve says.

    python benchmarks/profiling_live_job.py --rate 60 --serial 0.1 --knee 3 --width 8

One machine has too few cores to show scaling; all else (processes, reduces, resizes, reports) is real.
"""

import argparse
import time

import torch
from torch.utils.data import TensorDataset

from offcut.torch import Session

BATCH = 24


def curve(n: int, rate: float, serial: float, knee: float) -> float:
    """Samples/s on n nodes: Amdahl's law up to a knee."""
    usable = n / (1 + (n / knee) ** 6) ** (1 / 6)
    return rate * usable / (1 + serial * (usable - 1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=60.0)
    parser.add_argument("--serial", type=float, default=0.0)
    parser.add_argument("--knee", type=float, default=100.0)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0, help="at one node")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, given.width), torch.nn.Tanh(), torch.nn.Linear(given.width, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x = torch.randn(max(BATCH, round(given.seconds * given.rate)), 4)
    with Session(model, optimizer, TensorDataset(x, x.sum(1, keepdim=True)), global_batch=BATCH) as session:
        due_s = time.monotonic()
        for epoch in session.epochs(1):
            for batch in epoch:
                # From step to step, so that the machine's own time is not part of the curve while it fits in.
                took_s = BATCH / curve(session.world, given.rate, given.serial, given.knee)
                due_s = max(due_s + took_s, time.monotonic())
                time.sleep(due_s - time.monotonic() if due_s > time.monotonic() else 0.0)
                session.step(((session.model(batch.x) - batch.y) ** 2).mean())


if __name__ == "__main__":
    main()
