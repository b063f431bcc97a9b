"""Training of a model that is cut into stages, on several members: `PipelineSession`.

- `layer_chain`: a model as a chain of layers, and the module of any span of them (skip connections carried through)
- `session`: the contract with the user's script
- `member_stages`: the stages of the plan that this member computes; `pipeline_step`: one step with the vote
- `layer_state`, `layer_sync`: the state by layers, and how layers move between members
- `layer_checks`: compares what several members must have the same
- `runtime`: runs the program of a plan on the ranks of a group
"""

from offcut.torch.pipeline.layer_chain import LayerChain, layer_chain, load_model
from offcut.torch.pipeline.session import PipelineSession

__all__ = ["LayerChain", "PipelineSession", "layer_chain", "load_model"]
