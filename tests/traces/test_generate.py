"""The generator: valid windows, the same ones for a seed, with the statistics of Summit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offcut.errors import InputError
from offcut.traces.generate import generate


@given(st.integers(1, 40), st.floats(1, 200_000), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_windows_lie_inside_and_never_overlap(nodes, duration_s, seed):
    windows = generate(nodes, duration_s, seed)  # Windows.from_columns refuses overlaps and empty windows
    assert len(windows.names) <= nodes
    assert all(0 <= w.start_s < w.end_s <= duration_s for w in windows)
    _, count = windows.idle_count()
    assert count.max(initial=0) <= nodes


def test_a_seed_gives_the_same_windows_and_another_seed_others():
    first, again, other = (list(generate(200, 86_400, seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_lengths_idle_share_and_joint_endings_follow_summit():
    windows = generate(1_024, 14 * 86_400, 3)
    published = {0.10: 91, 0.25: 162, 0.50: 475, 0.75: 1_397, 0.90: 3_269, 0.95: 4_723, 0.99: 9_246}
    ours = np.quantile(windows.length_s, list(published))
    np.testing.assert_allclose(np.log(ours), np.log(list(published.values())), atol=0.25)
    idle_share = windows.length_s.sum() / (1_024 * 14 * 86_400)
    assert 0.05 < idle_share < 0.12  # Summit: 0.085
    _, group, size = np.unique(windows.start_s, return_inverse=True, return_counts=True)
    keys = np.stack([windows.start_s, windows.end_s])
    _, bundle, together = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
    many = size[group] > 1
    share = ((together[bundle.ravel()] - 1)[many] / (size[group] - 1)[many]).mean()
    assert share == pytest.approx(0.77, abs=0.05)


def test_invalid_arguments_are_reported():
    with pytest.raises(InputError, match="nodes must be at least 1, but is 0"):
        generate(0, 10, 1)
    with pytest.raises(InputError, match="duration must be greater than 0, but is nan"):
        generate(1, float("nan"), 1)
