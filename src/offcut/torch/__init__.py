"""What a training script imports: `import offcut.torch`, or `from offcut.torch import Session`.

- `elastic_parts`: `elastic`, `epochs`, `evaluate` and the like, for scripts that keep their own loop
- `session`: the contract with the user's script; `training_loop`: the common part of all sessions; `epoch`: one pass
  over the data; `training_member`: one member's boundaries and steps, without a loop
- `fingerprint`: a hash of what a script trains; `reporting`: reports to the agent and the step records
- `objective`: what a trial of a sweep uses: its parameters, and how it reports its objective
- `state`: the state of a training, and checkpoints of it
- `transport`: how tensors move between members
- `membership`: the members of a job, and how a worker that joins gets the state
- `step`: one training step of a data-parallel job
- `pipeline`: the same for a model that is cut into stages
- `transformers`, `accelerate`, `lightning`: those frameworks' trainers, elastic; `integrations`: how the first two are
  made so
- `programs`: programs with a process of their own: the workers' fork server, and the layer profiler
- `testing`: fault injection; `demo`: the training scripts of `offcut demo`
"""

from offcut.torch.elastic_parts.all_gather import all_gather
from offcut.torch.elastic_parts.functions import (
    draw_rows,
    elastic,
    epochs,
    evaluate,
    gather,
    last_loss,
    log,
    mean,
    once,
    reduce_gradients,
    report_loss,
    steps,
    sum,
    weight_by,
)
from offcut.torch.elastic_parts.row_state import RowState
from offcut.torch.elastic_parts.sharded_stream import ShardedStream
from offcut.torch.elastic_parts.sync_batch_norm import SyncBatchNorm
from offcut.torch.objective import max_budget, report_objective, trial_parameters
from offcut.torch.session import Left, Session
from offcut.torch.step.batch import Batch

__all__ = [
    "Batch",
    "Left",
    "RowState",
    "Session",
    "ShardedStream",
    "SyncBatchNorm",
    "all_gather",
    "draw_rows",
    "elastic",
    "epochs",
    "evaluate",
    "gather",
    "last_loss",
    "log",
    "max_budget",
    "mean",
    "once",
    "reduce_gradients",
    "report_loss",
    "report_objective",
    "steps",
    "sum",
    "trial_parameters",
    "weight_by",
]
