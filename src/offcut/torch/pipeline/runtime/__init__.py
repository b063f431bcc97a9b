"""Runs the program of a pipeline plan on the ranks of a process group.

- `engine`: forward and backward of every micro-batch, in the order of the program
- `transport`: messages between ranks; `stage_edges`: contiguous gradients at a stage's edges; `split_backward`: a
  backward in two halves
"""
