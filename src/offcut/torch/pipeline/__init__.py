"""A plan that runs: `PlanRunner(model, plan, loss_fn)` in every process of a torch.distributed group.

- `layers`: a model as a chain of layers, and the module of any span of them (skip connections carried through)
- `runner`: one step of a plan: which engine, gradients summed over replicas, failures made known to the peers
- `native`: programs on `torch.distributed.pipelining`
- `own`: programs that it cannot express: uneven replicas, Chimera
- `local`: the processes of a plan on this machine, with a time limit
"""

from offcut.torch.pipeline.layers import LayerChain, layer_chain, load_model
from offcut.torch.pipeline.runner import PlanRunner

__all__ = ["LayerChain", "PlanRunner", "layer_chain", "load_model"]
