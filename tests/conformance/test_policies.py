"""Every allocation policy that comes with offcut keeps what `offcut.allocate.policy.Policy` promises."""

from __future__ import annotations

import pytest

from offcut.allocate import policy
from offcut.testing import PolicyConformance


@pytest.mark.parametrize("name", policy.BUILT_IN)
class TestBuiltIn(PolicyConformance):
    @pytest.fixture
    def rule(self, name: str) -> policy.Policy:
        return policy.load(name)
