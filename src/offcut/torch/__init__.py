"""What a training script imports: `from offcut.torch import Session`.

- `session`: the contract with the user's script; `loop`: what sessions of every kind share
- `link`, `group`: the line to the agent, and one generation's process group that can be walked away from
- `reducer`, `sampler`, `batch`: gradients, which samples, and fetching them
- `state`, `transfer`, `checkpoint`: what a training is, how it moves, and how it is kept
- `rendezvous`: a member's side of the store through which the members of a generation find each other
- `template`: a program of its own: the process that workers are forked from
- `demo`: the training scripts of `offcut demo`
"""

from offcut.torch.batch import Batch
from offcut.torch.session import Left, Session

__all__ = ["Batch", "Left", "Session"]
