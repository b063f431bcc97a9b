"""Fixtures for live tests; one controller serves many cases, for starting one takes longer than a case."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from live import Running, shared_controller


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A controller of three nodes, which all modules here share."""
    with shared_controller(request, 3) as running:
        yield running
