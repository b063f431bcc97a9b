"""Checksums of a training's state, to see whether the members have the same one bit for bit.

They should: members apply the same sums to the same state by the same instructions. The last bits of floating tensors
may differ only if processors or numbers of threads differ; then these are left out (`exact`). Whole numbers in a
model's buffers are left out too, because each member counts its own.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

import torch

from offcut.errors import OffcutError
from offcut.torch.membership.differences import difference
from offcut.torch.membership.process_group import Group
from offcut.torch.state.training_state import TrainingState

#: Bits of a state's checksum: it is sent as two numbers that a float32 holds exactly.
STATE_BITS = 48
#: Words of 64 bits are summed in this many columns, each with its own factor, so that their order matters.
_COLUMNS = 64
_FACTORS = torch.randint(-(2**62), 2**62, (_COLUMNS,), generator=torch.Generator().manual_seed(1)) * 2 + 1
#: Comparing takes less than a hundredth of the time.
_RATIO = 100
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def arithmetic(device: torch.device) -> int:
    """Return a hash of what the last bits of a result may depend on, as a positive number of 63 bits."""
    kind = torch.cuda.get_device_name(device) if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()
    return number(f"{torch.__version__} {platform.machine()} {kind} {torch.get_num_threads()}", 63)


def number(text: str, bits: int) -> int:
    """Return a hash of `text` with `bits` bits that is not 0."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") % ((1 << bits) - 1) + 1


class Checksum:
    """The checksum of named things. `values` has a short text for each of them; `total` is their checksum, not 0.

    Args:
        things: tensors and plain values, by name.
        exact: whether floating tensors count.
    """

    def __init__(self, things: Iterable[tuple[str, Any]], *, exact: bool) -> None:
        #: By name.
        self.values: dict[str, str] = {}
        tensors: list[tuple[str, torch.Tensor]] = []
        for name, value in things:
            if not isinstance(value, torch.Tensor):
                self.values[name] = repr(value)
            elif exact or not (value.is_floating_point() or value.is_complex()):
                tensors.append((name, value))
        for (name, tensor), total in zip(tensors, sums([tensor for _, tensor in tensors]), strict=True):
            self.values[name] = f"{tuple(tensor.shape)} {tensor.dtype} {total & 0xFFFFFFFFFFFFFFFF:016x}"
        self.total = number(repr(sorted(self.values.items())), STATE_BITS)


def replica_checksum(state: TrainingState, *, exact: bool) -> Checksum:
    """Return the checksum of a whole state as it is now."""
    return Checksum(_things(state), exact=exact)


def _things(state: TrainingState) -> Iterator[tuple[str, Any]]:
    counts = {name for name, b in state.model.named_buffers() if not b.is_floating_point() and not b.is_complex()}
    tree = state.tree()
    for name, value in tree["model"].items():
        if name not in counts:
            yield from leaves(value, f"the model's {name}")
    for i, (saved, groups) in enumerate(zip(tree["optimizers"], tree["groups"], strict=True)):
        names = list(dict.fromkeys(name for group in groups for name in group))
        for p, kept in saved["state"].items():
            yield from leaves(kept, f"optimizer {i}'s state of {names[p] if isinstance(p, int) else p}")
        for j, settings in enumerate(saved["param_groups"]):
            yield from leaves(settings, f"optimizer {i}'s group {j}")
    yield from script_things(state, tree, ("trained", "frozen", "rate", "progress"))


def script_things(state: TrainingState, tree: dict[str, Any], names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Yield what is in `tree` of registered objects, and what it has by those `names`, one of them "progress"."""
    for i, (item, saved) in enumerate(zip(state.registered, tree["registered"], strict=True)):
        skipped = getattr(item, "not_compared", ())
        compared = {key: value for key, value in saved.items() if key not in skipped} if skipped else saved
        yield from leaves(compared, f"registered object {i} ({type(item).__name__})")
    # A script that has left a loop by `break` is at the same position as one that has come to its end.
    tree["progress"] |= {"epoch": state.next_sample.epoch, "offset": state.next_sample.offset}
    for name in names:
        yield from leaves(tree[name], name)


def leaves(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield what is in the nested dicts, lists and tuples of `tree`, by names that begin with `name`."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, f"{name}[{key!r}]")
    elif isinstance(tree, (list, tuple)) and not isinstance(tree, torch.Size):
        for i, value in enumerate(tree):
            yield from leaves(value, f"{name}[{i}]")
    else:
        yield name, sorted(tree, key=repr) if isinstance(tree, set) else tree


class CheckTimes:
    """Decides when the members compare their states: in the first step of every group, and then at little cost.

    The first member wants it when it has been at other work for `_RATIO` times as long as the last one took.
    """

    def __init__(self) -> None:
        self._group: Group | None = None
        #: All members have agreed to compare in the next step.
        self.wanted = False
        self._due_s = 0.0

    @property
    def due(self) -> bool:
        """Whether this member wants all to compare in the next step."""
        return time.monotonic() >= self._due_s

    def compares_now(self, group: Group) -> bool:
        """Return whether the members of `group` compare in the step that begins; to be called once in each."""
        first, self._group = self._group is not group, group
        wanted, self.wanted = self.wanted, False
        return group.world > 1 and (first or wanted)

    def took(self, seconds: float) -> None:
        """Note how long this member's part of a comparison took, in seconds."""
        self._due_s = time.monotonic() + _RATIO * seconds


class StateChecks:
    """Compares the whole states of the members; the checksums are sent with the reduces of their steps."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self.times = CheckTimes()
        self._checksum: Checksum | None = None

    def begin(self, group: Group) -> None:
        """Begin a step on the state of a boundary."""
        self._checksum = None
        if self.times.compares_now(group):
            began_s = time.monotonic()
            self._checksum = replica_checksum(self._state, exact=group.exact)
            self.times.took(time.monotonic() - began_s)

    @property
    def total(self) -> int:
        """Return the checksum of the state that the step began with; 0 if the members do not compare in this step."""
        return self._checksum.total if self._checksum is not None else 0

    def compare(self, group: Group, totals: Sequence[int]) -> None:
        """Raise an error that names what differs, on all members, if their `totals` differ. Raises Abandoned too."""
        if len(set(totals)) > 1:
            mine = self._checksum or replica_checksum(self._state, exact=group.exact)
            raise states_differ(group, mine, self._state.step)


#: What the error about members with different states begins and ends with.
DIFFERENT, ALIKE = (
    "offcut.torch: after step {step} the members' states are not the same",
    "Let all members do the same with what is trained and registered: decide by session.steps, session.loss and "
    "registered state; not by the clock, the rank, or the loss of its own share.",
)


def states_differ(group: Group, mine: Checksum, step: int) -> OffcutError:
    """Return the error that names what differs after `step`; all members of `group` call this at once."""
    return difference(group, DIFFERENT.format(step=step), mine.values, ALIKE)


def sums(tensors: list[torch.Tensor]) -> list[int]:
    """Return a sum over each tensor's bits, independent of its strides; wait once for each device."""
    found = [_sum(tensor.detach()) for tensor in tensors]
    values = [0] * len(found)
    for device in {one.device for one in found}:
        places = [i for i, one in enumerate(found) if one.device == device]
        for i, value in zip(places, torch.stack([found[i] for i in places]).tolist(), strict=True):
            values[i] = value
    return values


def _sum(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    flat = tensor.reshape(-1)
    if flat.numel() * flat.element_size() % 8 or flat.numel() == 0:
        return flat.view(_WORDS[flat.element_size()]).sum(dtype=torch.int64)
    if flat.storage_offset() * flat.element_size() % 8:
        flat = flat.clone()
    words = flat.view(torch.int64)
    left = words.numel() % _COLUMNS
    factors = _FACTORS.to(words.device)
    if left == words.numel():
        return (words * factors[:left]).sum()
    columns = words[: words.numel() - left].view(-1, _COLUMNS).sum(0)
    if left:
        columns[:left] += words[-left:]
    return (columns * factors).sum()
