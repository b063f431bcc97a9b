"""Fixtures for tests against a real Slurm."""

from live import state_dir  # noqa: F401
from slurmed import harvest, private_slurm  # noqa: F401
