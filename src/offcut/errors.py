"""Every exception that offcut raises on purpose.

An `OffcutError` carries one clear sentence (what is wrong and where) and, apart from it, the next step to take. The
command line prints both and exits with `exit_code`; no traceback of these reaches a user.
"""

from __future__ import annotations


class OffcutError(Exception):
    """Base of all. `what` says what is wrong and where; `next_step` says what to do about it."""

    exit_code = 1

    def __init__(self, what: str, *, next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.what} {self.next_step}".rstrip()

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions cross process borders (the solver's); the default would lose the keyword argument.
        return (_rebuild, (type(self), self.what, self.next_step))


def _rebuild(kind: type[OffcutError], what: str, next_step: str) -> OffcutError:
    return kind(what, next_step=next_step)


class InputError(OffcutError):
    """What the user gave (a file, a field, an argument) cannot be used. The sentence names file, line or field."""

    exit_code = 2


class ClusterError(OffcutError):
    """The batch system refused or did not answer."""


class AllocationError(OffcutError):
    """A solver could not answer an allocation problem."""


class ProtocolError(OffcutError):
    """A message that does not belong: an unknown kind, another version, a wrong token."""


class StoreError(OffcutError):
    """The state directory cannot be read or written, or belongs to another controller."""

    exit_code = 2


class ResizeError(OffcutError):
    """A generation could not be formed."""


class ServiceError(OffcutError):
    """A part of the controller has failed without which it cannot go on."""


class UnreachableError(OffcutError):
    """No controller answers."""

    exit_code = 2
