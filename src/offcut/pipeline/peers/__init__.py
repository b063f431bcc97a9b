"""Comparisons, used by tests and benchmarks only.

- `bapipe`: BaPipe's exploration
- `baselines`: data parallelism, and PipeDream's optimiser
- `closed_forms`: the formulae of the literature, against which the simulator is checked
"""
