"""One checkpoint: a directory in the format of torch.distributed.checkpoint (DCP), to which each member writes its
share.

DCP's own `save` and `async_save` meet in collectives: on the training's process group they get between its own, and on
any group a member that dies leaves the others' writers waiting. So only DCP's planner, writer and reader are used, and
what members have to tell each other lies in the directory: a member's record of its share is written last, and the
member that publishes makes the metadata out of all records. `torch.distributed.checkpoint.load` and its tools read the
result.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.storage import WriteResult

from offcut.torch.state.plain_values import read_back
from offcut.torch.state.state_codec import put_together, take_apart

_SKELETON = "skeleton"


@dataclass(frozen=True, slots=True)
class Share:
    """One member's share of a checkpoint: copies, by name.

    The first member's has the whole checkpoint's metadata too.
    """

    rank: int
    tensors: dict[str, torch.Tensor]
    metadata: Metadata | None


def share(tree: dict[str, Any], rank: int, world: int) -> Share:
    """Copy this member's share of a state that all members have. InputError if it could not be read back.

    Each tensor goes to the member with the fewest bytes so far.
    """
    skeleton, tensors = take_apart(tree)
    read_back(skeleton.numpy().tobytes())
    tensors = {_SKELETON: skeleton, **tensors}
    filled = [0] * world
    mine = {}
    for name, tensor in tensors.items():
        owner = min(range(world), key=filled.__getitem__)
        filled[owner] += tensor.numel() * tensor.element_size()
        if owner == rank:
            mine[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    metadata = None
    if rank == 0:
        planner = _planner({name: torch.empty_like(tensor, device="meta") for name, tensor in tensors.items()})
        _, metadata = planner.create_global_plan([planner.create_local_plan()])
    return Share(rank, mine, metadata)


def write(directory: Path, part: Share, visit: Callable[[], object] = lambda: None) -> None:
    """Write a share, durably; `visit` is called when all but its record is there.

    Raises OSError or what DCP raises where the disk fails.
    """
    planner = _planner(part.tensors)
    writer = _writer(directory)
    # The files of rank r begin with __r_.
    plan = writer.prepare_local_plan(planner.create_local_plan())
    plan = writer.prepare_global_plan([plan] * (part.rank + 1))[part.rank]
    results = writer.write_data(planner.finish_plan(plan), planner).wait()
    visit()
    record = [
        {
            "name": result.index.fqn,
            "offset": list(result.index.offset or ()),
            "index": result.index.index,
            "size_bytes": result.size_in_bytes,
            "file": result.storage_data.relative_path,
            "start": result.storage_data.offset,
            "length": result.storage_data.length,
        }
        for result in results
    ]
    whole = _record(directory, part.rank)
    unfinished = whole.with_suffix(".new")
    with unfinished.open("w") as file:
        json.dump(record, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(whole)


def complete(directory: Path, world: int) -> bool:
    """Return whether every member has written its share."""
    return all(_record(directory, rank).exists() for rank in range(world))


def leave_out(directory: Path, rank: int) -> None:
    """Note that this member does not write its share of a checkpoint. Raises OSError if the disk fails."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"share-{rank}.left-out").touch()


def left_out(directory: Path) -> bool:
    """Return whether a member does not write its share."""
    return any(directory.glob("share-*.left-out"))


def finish(directory: Path, metadata: Metadata | None, world: int) -> None:
    """Write the metadata of a complete checkpoint, on the first member: from then on it can be read."""
    assert metadata is not None, "only the first member has it"
    results = []
    for rank in range(world):
        path = _record(directory, rank)
        results.append([_result(entry) for entry in json.loads(path.read_text())])
        path.unlink()
    _writer(directory).finish(metadata, results)


def read(directory: Path) -> dict[str, Any]:
    """Return the state in a checkpoint, on the CPU. Raises an Exception of some kind if it is damaged."""
    found = dcp.FileSystemReader(directory).read_metadata().state_dict_metadata
    tensors = {
        name: torch.empty(kept.size, dtype=kept.properties.dtype)
        for name, kept in found.items()
        if isinstance(kept, TensorStorageMetadata)
    }
    with warnings.catch_warnings():  # loading in a single process is intended
        warnings.simplefilter("ignore", UserWarning)
        try:
            dcp.load(tensors, checkpoint_id=directory, no_dist=True)
        except dcp.CheckpointException as error:  # it is not an Exception, and its text is a traceback
            raise next(iter(error.failures.values()))[0] from None
    in_order = iter(
        tensors[name] for name in sorted(tensors.keys() - {_SKELETON}, key=lambda name: int(name.partition(":")[0]))
    )
    return put_together(tensors[_SKELETON], lambda path, shape, dtype: next(in_order))


def _planner(tensors: dict[str, torch.Tensor]) -> dcp.DefaultSavePlanner:
    planner = dcp.DefaultSavePlanner()
    planner.set_up_planner(tensors, is_coordinator=True)
    return planner


def _writer(directory: Path) -> dcp.FileSystemWriter:
    writer = dcp.FileSystemWriter(directory)
    writer.set_up_storage_writer(True)
    return writer


def _record(directory: Path, rank: int) -> Path:
    return directory / f"share-{rank}.json"


def _result(entry: dict[str, Any]) -> WriteResult:
    return WriteResult(
        index=MetadataIndex(entry["name"], torch.Size(entry["offset"]), entry["index"]),
        size_in_bytes=entry["size_bytes"],
        storage_data=_StorageInfo(entry["file"], entry["start"], entry["length"]),
    )
