"""The contents of the rendezvous store: keys by generation of a job, within limits. Pure: no clock, no connections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from offcut.errors import ProtocolError

#: Generations of a job whose keys are kept: members of the one before may still look something up.
KEPT_GENERATIONS = 2
#: The newest generations of this many jobs are remembered: of those that met last.
_JOBS = 10_000
#: The memory of a key besides its name and value, roughly.
_KEY_BYTES = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The store's limits.

    Gloo needs one key per rank and group, of 100 + 12 bytes for every rank of the group.
    """

    keys: int = 65_536
    value_bytes: int = 1 << 20
    generation_bytes: int = 64 << 20
    all_bytes: int = 512 << 20
    #: A member has one connection per group that it belongs to.
    connections: int = 8192


class Refused(ProtocolError):
    """A request exceeds a limit or makes no sense."""


@dataclass(slots=True)
class GenerationKeys:
    """One generation's keys. `over`: a newer generation has replaced it."""

    values: dict[bytes, bytes] = field(default_factory=dict)
    stored_bytes: int = 0
    connections: int = 0
    over: bool = False
    #: By key: called once, when the key is stored or can no longer be.
    waiting: dict[bytes, list[Callable[[], None]]] = field(default_factory=dict)


class Keys:
    """The keys of all generations."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._generations: dict[tuple[str, int], GenerationKeys] = {}
        #: The newest generation of every job that has had one.
        self._newest: dict[str, int] = {}
        self.stored_bytes = 0

    def join(self, job: str, number: int) -> GenerationKeys:
        """Add a connection to a generation. It is created if it is new; generations that are too old end."""
        newest = max(number, self._newest.pop(job, number))
        self._newest[job] = newest
        if len(self._newest) > _JOBS:
            del self._newest[next(iter(self._newest))]
        if number <= newest - KEPT_GENERATIONS:
            raise Refused(f"Generation {number} of {job} is over: there is a generation {newest}.")
        for old in [key for key in self._generations if key[0] == job and key[1] <= newest - KEPT_GENERATIONS]:
            self._free(old)
        generation = self._generations.setdefault((job, number), GenerationKeys())
        if generation.connections >= self._limits.connections:
            raise Refused(f"Generation {number} of {job} has {generation.connections} connections, which is the limit.")
        generation.connections += 1
        return generation

    def part(self, job: str, number: int, generation: GenerationKeys) -> None:
        """Remove a connection from a generation. What it stored is freed after the last one."""
        generation.connections -= 1
        if generation.connections == 0 and self._generations.get((job, number)) is generation:
            self._free((job, number))

    def _free(self, name: tuple[str, int]) -> None:
        generation = self._generations.pop(name)
        self.stored_bytes -= generation.stored_bytes
        generation.values.clear()
        generation.stored_bytes = 0
        generation.over = True
        for key in list(generation.waiting):
            _wake(generation, key)

    def set(self, generation: GenerationKeys, key: bytes, value: bytes) -> None:
        if generation.over:
            raise Refused("This generation is over.")
        old = generation.values.get(key)
        grows_bytes = len(value) - len(old) if old is not None else len(key) + len(value) + _KEY_BYTES
        limits = self._limits
        if old is None and len(generation.values) >= limits.keys:
            raise Refused(f"A generation may have {limits.keys} keys.")
        if len(key) > limits.value_bytes or len(value) > limits.value_bytes:
            raise Refused(f"A key or value may have {limits.value_bytes} bytes.")
        if generation.stored_bytes + grows_bytes > limits.generation_bytes:
            raise Refused(f"A generation may store {limits.generation_bytes} bytes.")
        if self.stored_bytes + grows_bytes > limits.all_bytes:
            raise Refused(f"The rendezvous store is full: {limits.all_bytes} bytes.")
        generation.values[key] = value
        generation.stored_bytes += grows_bytes
        self.stored_bytes += grows_bytes
        _wake(generation, key)

    def append(self, generation: GenerationKeys, key: bytes, value: bytes) -> None:
        self.set(generation, key, generation.values.get(key, b"") + value)

    def add(self, generation: GenerationKeys, key: bytes, amount: int) -> int:
        """Add to a number, which is 0 at first. Return the sum."""
        try:
            total = int(generation.values.get(key, b"0")) + amount
        except ValueError:
            raise Refused("The stored value is not a number.") from None
        self.set(generation, key, str(total).encode())
        return total

    def compare_set(self, generation: GenerationKeys, key: bytes, expected: bytes, desired: bytes) -> bytes:
        """Store `desired` if `expected` is stored, or if nothing is and `expected` is empty.

        Return what is stored then.
        """
        current = generation.values.get(key)
        if current == expected or (current is None and not expected):
            self.set(generation, key, desired)
            return desired
        return expected if current is None else current

    def delete(self, generation: GenerationKeys, key: bytes) -> bool:
        """Delete the key. Return whether it was there."""
        value = generation.values.pop(key, None)
        if value is None:
            return False
        freed_bytes = len(key) + len(value) + _KEY_BYTES
        generation.stored_bytes -= freed_bytes
        self.stored_bytes -= freed_bytes
        return True

    @staticmethod
    def missing(generation: GenerationKeys, keys: Sequence[bytes]) -> bytes | None:
        """Return the first of `keys` that is not stored."""
        return next((key for key in keys if key not in generation.values), None)


def _wake(generation: GenerationKeys, key: bytes) -> None:
    for wake in generation.waiting.pop(key, ()):
        wake()
