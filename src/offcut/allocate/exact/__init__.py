"""The exact solver: counts to proven optimality, usually in well under a millisecond."""

from offcut.allocate.exact.solver import solve, warm

__all__ = ["solve", "warm"]
