"""The random process that generates the idle windows of a machine; the default parameters are Summit's.

Nodes become idle in *groups*: all nodes of one group at the same instant, when a batch job ends that no queued job
replaces. A hidden level z(t), a stationary Gaussian process with correlation exp(-|dt| / memory_s), stands for how
badly the queue fits the machine just now: groups come at the rate opens_per_h * exp(swing * z - swing^2 / 2). So sizes
and lengths have exactly the distributions asked for, the mean idle count follows from them (Little's law), and `swing`
and `memory_s` spread the idle count around its mean as the trace's own does. Inside a group, windows are split by a
Chinese restaurant process whose parameter makes any two of them end together with probability `together`; ends gather
at the instants at which the queue takes nodes (`ends_per_h`).
"""

from __future__ import annotations

from dataclasses import dataclass

#: The probabilities at which the quantile tables below are given.
LEVELS = (0.0, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowProcess:
    """The process of a machine of `nodes` nodes; `group_size` and `length_s` are quantiles at LEVELS.

    On a machine of another size, group sizes are scaled with it and the other parameters stay the same.
    """

    nodes: int
    opens_per_h: float
    ends_per_h: float
    group_size: tuple[float, ...]
    length_s: tuple[float, ...]
    together: float
    swing: float
    memory_s: float


#: Summit, 15 days of February 2021, 4,680 nodes (the trace of BFTrainer, arXiv 2106.12091): fitted by `fit_process`.
SUMMIT = WindowProcess(
    nodes=4680,
    opens_per_h=41.1,
    ends_per_h=30.8,
    group_size=(1, 1, 1, 1, 1, 1, 2, 4, 6, 10, 16, 20, 50, 108, 256, 512, 980, 1600, 2780),
    length_s=(50, 81, 91, 132, 162, 193, 294, 475, 688, 1143, 1397, 1759, 3269, 4723, 7197, 9246, 9671, 12585, 271990),
    together=0.772,
    swing=1.7,
    memory_s=4800.0,
)
