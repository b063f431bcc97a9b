"""Seven ImageNet networks as BFTrainer measured them (arXiv 2106.12091), each as two rounded numbers.

The scaling curve of a network is Amdahl's law, `rate(n) = one_node_rate * n / (1 + serial * (n - 1))`, with the serial
share fitted to the measured speed-up on 64 nodes of Summit; between 2 and 32 nodes it is within a tenth of the measured
rates. They are for a first estimate; a job list with measured curves is better.
"""

from __future__ import annotations

from dataclasses import dataclass

from offcut.model import ScalingCurve
from offcut.traces.job_list import ListedJob

_SIZES = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class Network:
    """
    Args:
        network: `one_node_rate` in images/s; `serial` is the share of a step that more nodes do not speed up.
    """

    name: str
    one_node_rate: float
    serial: float

    @property
    def curve(self) -> ScalingCurve:
        """The scaling curve up to 64 nodes, in images/s."""
        return ScalingCurve(_SIZES, tuple(self.one_node_rate * n / (1 + self.serial * (n - 1)) for n in _SIZES))


NETWORKS = (
    Network("AlexNet", 7_100, 0.0199),
    Network("VGG-16", 1_190, 0.0014),
    Network("ResNet-18", 5_200, 0.0043),
    Network("DenseNet", 990, 0.0015),
    Network("MnasNet", 3_200, 0.0047),
    Network("ShuffleNet", 2_800, 0.0039),
    Network("MobileNet", 3_000, 0.0040),
)
#: Images of one pass over ImageNet.
IMAGENET = 1_281_167


def diverse_jobs(samples: float = 100 * IMAGENET) -> tuple[ListedJob, ...]:
    """Return one job of each network, on 1 to 64 nodes, with the costs of BFTrainer's restart.

    Args:
        samples: images that each job trains on.

    Returns:
        Jobs for a replay that repeats them.
    """
    return tuple(
        ListedJob(
            id=network.name,
            curve_name=network.name,
            curve=network.curve,
            submit_s=0.0,
            min_nodes=1,
            max_nodes=64,
            samples=samples,
            grow_cost_s=18.0,
            shrink_cost_s=12.0,
        )
        for network in NETWORKS
    )
