"""The only code that talks to a batch system.

- `base`: what every cluster promises
- `local`: virtual nodes on this machine
- `slurm`: a partition of a Slurm
"""
