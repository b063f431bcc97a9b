"""Ends a worker's process when the worker leaves its job."""

from __future__ import annotations

import weakref


class Left(SystemExit):
    """This worker leaves its job: the script ends here, with exit code 0.

    The steps so far are safe with the other members or in a checkpoint.
    """

    def __init__(self) -> None:
        super().__init__(0)


def exit_quickly() -> None:
    """Skip the clean-up that torch does when a process exits; the script's own finalizers run as usual.

    Torch unregisters every operator, which takes longer than the rest of leaving a node and is not needed here.
    """
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        alive = finalizer.peek()
        if alive is not None and getattr(alive[1], "__module__", "") == "torch.library":
            finalizer.atexit = False
