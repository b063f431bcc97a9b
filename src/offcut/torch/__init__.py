"""What a training script imports: `from offcut.torch import Session`.

- `session`: the contract with the user's script; `training_loop`: what sessions of every kind share; `epoch`: one pass
  over the data
- `fingerprint`: a hash of what a script trains; `reporting`: what the agent and the step records are told
- `state`: what a training is, and how it is kept
- `membership`: who is a member of the job, and how the state gets to a worker that joins
- `step`: one training step of a data-parallel job
- `pipeline`: the same for a model that is cut into stages
- `programs`: processes of their own: the one that workers are forked from, and the layer profiler
- `testing`: fault injection; `demo`: the training scripts of `offcut demo`
"""

from offcut.torch.session import Left, Session
from offcut.torch.step.batch import Batch

__all__ = ["Batch", "Left", "Session"]
