"""The exceptions that offcut raises deliberately.

An `OffcutError` carries one sentence (what is wrong and where) and, separately, the next step to take. The command
line prints both and exits with `exit_code`; users never see a traceback of an OffcutError.
"""

from __future__ import annotations


class OffcutError(Exception):
    """The base of all of them. `what` says what is wrong and where; `next_step` says what to do about it."""

    exit_code = 1

    def __init__(self, what: str, *, next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.what} {self.next_step}".rstrip()

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled between processes (the solver's); the default would lose the keyword argument.
        return (_rebuild, (type(self), self.what, self.next_step))


def _rebuild(kind: type[OffcutError], what: str, next_step: str) -> OffcutError:
    return kind(what, next_step=next_step)


class InputError(OffcutError):
    """The input of the user (a file, a field, an argument) is not usable.

    The sentence names the file, line or field.
    """

    exit_code = 2


class ClusterError(OffcutError):
    """The batch system refused or did not answer."""


class AllocationError(OffcutError):
    """A solver could not answer an allocation problem."""


class ProtocolError(OffcutError):
    """A message was not accepted: an unknown kind, another version, or a wrong token."""


class StoreError(OffcutError):
    """The state directory cannot be read or written, or belongs to another controller."""

    exit_code = 2


class ResizeError(OffcutError):
    """A generation could not be formed."""


class ServiceError(OffcutError):
    """A part of the controller failed that it cannot run without."""


class UnreachableError(OffcutError):
    """The controller does not answer."""

    exit_code = 2


class WaitTimeoutError(OffcutError):
    """A job or sweep has not ended within the time for which it was waited."""


class BusyError(UnreachableError):
    """The controller answers as many requests as it may at once."""

    exit_code = 1
