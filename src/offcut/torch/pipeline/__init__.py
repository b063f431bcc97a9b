"""Plans that run: a malleable job (`PipelineSession`), or one plan in a torch.distributed group (`PlanRunner`).

- `layers`: a model as a chain of layers, and the module of any span of them (skip connections carried through)
- `own`: our runtime, for any program; `halves`, `boundary`: its backwards and edges; `wire`: what it sends over
- `session`: the contract with the user's script; `stage_work`: its step, with the vote
- `placed`, `seat`, `parts`: the state by layers, how it moves between members, and how it is kept
- `runner`: one step of a plan outside a job; `native`: the same on `torch.distributed.pipelining`
- `local`: the processes of a plan on this machine, with a time limit
"""

from offcut.torch.pipeline.layers import LayerChain, layer_chain, load_model
from offcut.torch.pipeline.runner import PlanRunner
from offcut.torch.pipeline.session import PipelineSession

__all__ = ["LayerChain", "PipelineSession", "PlanRunner", "layer_chain", "load_model"]
