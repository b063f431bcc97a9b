"""One trial of a search for a phase transition: can a perceptron with binary weights learn these random patterns?

    python examples/sweep/perceptron.py --alpha=0.6 --seed=1             # alone, in a second
    offcut sweep examples/sweep/perceptron.toml --follow                 # every load, size and seed
    offcut sweeps perceptron --json > perceptron.json                    # perceptron_figure.py draws them

`alpha * n` random patterns with random labels are to be told apart by n weights of +1 or -1. The weights are drawn at
random with means m between -1 and 1; gradient ascent in m maximises the likelihood that all patterns are right, and the
weights become certain by themselves (Baldassi et al. 2018, arXiv 1710.09825). The answer is sign(m). The objective is
the number of patterns that it gets wrong, after every hundred steps; the script ends at 0.

It needs no library of offcut: it appends lines to a file. It saves nothing, because it takes seconds: after a reclaim
it begins again, and what it reports again is ignored.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
from scipy.special import log_ndtr

parser = argparse.ArgumentParser(description="Teach a perceptron with binary weights.")
parser.add_argument("--n", type=int, default=1001, help="weights")
parser.add_argument("--alpha", type=float, default=0.6, help="patterns per weight")
parser.add_argument("--seed", type=int, default=0, help="of the patterns and of the first means")
parser.add_argument("--rate", type=float, default=0.01, help="step size of the gradient ascent")
parser.add_argument("--steps", type=int, default=3000)
arguments = parser.parse_args()

random = np.random.default_rng(arguments.seed)
count = round(arguments.alpha * arguments.n)
# Patterns times labels: a pattern is right where its product with the weights is greater than 0. n is odd, so never 0.
signed = (2 * random.integers(0, 2, (count, arguments.n)) - 1).astype(np.float32)
mean = random.uniform(-0.1, 0.1, arguments.n).astype(np.float32)
directory = os.environ.get("OFFCUT_JOB_DIR")
steps = int(float(os.environ.get("OFFCUT_MAX_BUDGET", arguments.steps)))


def report(step: int, wrong: int) -> None:
    """Report the objective to the sweep; alone there is none."""
    if directory is not None:
        with (Path(directory) / "objectives.jsonl").open("a") as file:
            file.write(json.dumps({"budget": step, "value": wrong}) + "\n")


wrong, step = count, 0
while wrong > 0 and step < steps:
    # The weights' sum over a pattern is nearly normal, with this deviation; z is by how many of them it is right.
    deviation = max(float((1 - mean * mean).sum()), 1e-3) ** 0.5
    product = signed @ mean
    z = product / deviation
    # The derivative of log Phi(z).
    hazard = np.exp(-0.5 * z * z - 0.5 * np.log(2 * np.pi) - log_ndtr(z))
    gradient = (hazard @ signed) / deviation + (hazard * product).sum() * mean / deviation**3
    mean = np.clip(mean + arguments.rate * gradient, -1, 1)
    step += 1
    if step % 100 == 0 or step == steps:
        wrong = int((signed @ np.sign(mean) <= 0).sum())
        report(step, wrong)
print(f"{wrong} of {count} patterns wrong after {step} steps; the mean of m^2 is {(mean * mean).mean():.3f}")
