"""offcut trains neural networks on the nodes that a batch queue cannot fill, and gives each node back at once.

The packages, from left to right of the layer rule (a package imports only from those before it):

- `errors`, `model`: what can go wrong, and the nouns; `userfile`: a user's own function in place of one of ours
- `wire`, `allocate`, `advisor`, `pipeline`, `traces`: messages, and the pure decisions and formats
- `control`: the brain, one pure function `step(state, event)`
- `cluster`, `store`, `agent`, `simulate`: the edges where effects happen
- `service`: the running controller
- `report`, `web`, `testing`, `cli`: what people see; conformance suites for authors of clusters and policies
- `torch`: what a training script imports; the only package that imports torch
"""

__version__ = "0.1.0"
