"""Fixtures for live tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from live import Running, shared_controller, state_dir, up  # noqa: F401


@pytest.fixture(scope="session")
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A controller of three nodes for all tests that leave it as it was; they begin with `prepare_nodes`."""
    with shared_controller(request, 3) as running:
        yield running
