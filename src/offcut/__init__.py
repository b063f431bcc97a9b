"""offcut trains neural networks on the nodes that a batch queue cannot fill, and releases each node when it is wanted.

The packages, from left to right of the layer rule (a package imports only from those before it):

- `errors`: what can go wrong; `plaintext`: text from outside, made safe to print; `number_format`: numbers as
  people read them
- `model`: the nouns; `histogram`: counts of durations by size; `userfile`: loads a user's own function in place of one
  of ours
- `wire`, `process`: messages, and processes; `allocate`, `advisor`, `pipeline`, `traces`: pure decisions and formats;
  `membership`: what a member of a job decides, pure; `search`: sweeps, and which of their trials run, pure
- `control`: every decision of the controller, one pure function `step(state, event)`
- `cluster`, `store`, `agent`, `simulate`: the edges where effects happen
- `service`: the running controller
- `report`: figures and pages; `testing`: conformance suites for authors of clusters and policies; `client`: the Python
  API of a running controller
- `cli`: the command line
- `torch`: what a training script imports; the only package that imports torch
"""

__version__ = "0.1.0"
