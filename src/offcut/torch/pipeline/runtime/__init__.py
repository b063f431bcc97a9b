"""Runs the program of a pipeline plan on the ranks of a process group.

- `engine`: forward and backward of every micro-batch, in the order of the program
- `transport`: how tensors get from rank to rank; `stage_edges`, `split_backward`: what a stage needs at its edges
"""
