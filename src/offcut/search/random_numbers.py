"""Random numbers that follow from a sweep's seed and from what they are for: the same whenever they are drawn."""

from __future__ import annotations

import random
from hashlib import blake2b


def random_for(seed: int, purpose: str, *numbers: float) -> random.Random:
    """Return a generator for one purpose.

    A decision draws from its own generator, so that it does not depend on how many were drawn before it.

    Args:
        seed: the sweep's seed.
        purpose: what is drawn: `suggest`, `perturb`, ....
        numbers: what tells this purpose from others of its kind: a trial's number, its budget.
    """
    text = " ".join([str(seed), purpose, *(repr(number) for number in numbers)])
    return random.Random(int.from_bytes(blake2b(text.encode(), digest_size=16).digest()))
