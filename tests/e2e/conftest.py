"""Fixtures for live tests."""

from live import state_dir, up  # noqa: F401
