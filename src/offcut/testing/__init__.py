"""Conformance suites, for authors of cluster adapters and of allocation policies.

A suite is a class of pytest tests that state the promises of a Protocol one by one. Inherit from it in a test file of
your own, say how to make what is to be tested, and run pytest. offcut's own adapters and policies pass the same
classes. The package needs pytest: `pip install 'offcut[testing]'`.

- `cluster`, `policy`: the suites
- `campaign`: whole systems under a simulated clock and network, for offcut itself
"""

from __future__ import annotations

from offcut.testing.cluster import ClusterConformance, WatchedCluster
from offcut.testing.policy import PolicyConformance

__all__ = ["ClusterConformance", "PolicyConformance", "WatchedCluster"]
