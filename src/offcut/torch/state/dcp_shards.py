"""One checkpoint: a directory in the format of torch.distributed.checkpoint (DCP), to which members write shares.

DCP's own `save` and `async_save` meet in collectives: on the training's process group they get between its own, and on
any group a member that dies leaves the others' writers waiting. So only DCP's planner, writer and reader are used, and
what members have to tell each other lies in the directory: the record of a share is written last, and the member that
publishes makes the metadata out of all records. `torch.distributed.checkpoint.load` and its tools read the result.

A checkpoint holds one or more *pieces* of a state, each a tree. The tensors of a piece have their names in its tree, so
that the model's are `model.NAME`; all else of it is in the tensor `offcut.PIECE`, its skeleton. DCP notices files that
are cut or missing, and no bits that have flipped: `checksums.json` has the CRC-32 of every tensor's bytes.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import _StorageInfo, _StoragePrefix
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.storage import WriteResult

from offcut.errors import InputError
from offcut.torch.state.plain_values import read_back
from offcut.torch.state.state_codec import TreePath, put_together, take_apart

#: The names of skeletons begin with this.
_SKELETON = "offcut."
_CHECKSUMS = "checksums.json"


@dataclass(frozen=True, slots=True)
class Share:
    """What one member writes to a checkpoint at once: copies of tensors, by name, and their paths in the piece's tree.

    No two shares of a checkpoint have the same name; files of the same name would be those of the same share.
    """

    name: str
    tensors: dict[str, torch.Tensor]
    paths: dict[str, TreePath]
    files: str


def share_of_whole(tree: dict[str, Any], rank: int, world: int) -> Share:
    """Copy this member's share of a state that all members have, the piece `state`.

    Each tensor goes to the member with the fewest bytes so far.

    Args:
        tree: the whole state.
        rank: this member's rank, which is the share's name.
        world: the number of members.

    Raises:
        InputError: the state could not be read back.
    """
    tensors, paths = _tensors("state", tree)
    filled = [0] * world
    mine = set()
    for name, tensor in tensors.items():
        owner = min(range(world), key=filled.__getitem__)
        filled[owner] += tensor.numel() * tensor.element_size()
        if owner == rank:
            mine.add(name)
    copies = {name: _copy(tensor) for name, tensor in tensors.items() if name in mine}
    return Share(str(rank), copies, {name: path for name, path in paths.items() if name in mine}, str(rank))


def share_of_piece(piece: str, tree: dict[str, Any]) -> Share:
    """Copy a piece of the state, as a share of that name.

    Several members may write it, each to files of its own, and the last record counts.

    Args:
        piece: its name.
        tree: the piece.

    Raises:
        InputError: it could not be read back.
    """
    tensors, paths = _tensors(piece, tree)
    return Share(piece, {name: _copy(t) for name, t in tensors.items()}, paths, f"{piece}.{os.urandom(4).hex()}")


def _tensors(piece: str, tree: dict[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, TreePath]]:
    skeleton, tensors, paths = take_apart(tree, _stays_in_skeleton)
    read_back(skeleton.numpy().tobytes())
    return {_SKELETON + piece: skeleton, **tensors}, {_SKELETON + piece: ("offcut", piece), **paths}


def _stays_in_skeleton(path: TreePath, tensor: torch.Tensor) -> bool:
    """Return whether a tensor is not worth a name: empty ones, and the scalars that optimizers count steps with."""
    return tensor.numel() == 0 or (tensor.dim() == 0 and path[0] != "model")


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    # Not DCP's DefaultStager, which meets no collective, but keeps the copies for ever, and copies a view's whole
    # storage. On a CPU 180 tensors of 20 kB took it 2.7 ms, this 1.4; 20 of 16 MB 31 and 29 ms; a third of the views of
    # one storage of 24 MB 2.1 and 0.3 ms. From an accelerator its pinned memory may be faster.
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def write(directory: Path, share: Share, visit: Callable[[], object] = lambda: None) -> None:
    """Write a share, durably; `visit` is called when all but its record is there.

    Raises OSError or what DCP raises where the disk fails.
    """
    planner = dcp.DefaultSavePlanner()
    planner.set_up_planner(share.tensors, is_coordinator=True)
    writer = _writer(directory)
    plan = writer.prepare_local_plan(planner.create_local_plan())
    plan = replace(plan, storage_data=_StoragePrefix(f"__{share.files}_"))
    results = writer.write_data(planner.finish_plan(plan), planner).wait()
    visit()
    record = [
        {
            "name": result.index.fqn,
            "path": share.paths[result.index.fqn],
            "shape": list(share.tensors[result.index.fqn].shape),
            "dtype": str(share.tensors[result.index.fqn].dtype).removeprefix("torch."),
            "crc32": _checksum(share.tensors[result.index.fqn]),
            "file": result.storage_data.relative_path,
            "start": result.storage_data.offset,
            "length": result.storage_data.length,
        }
        for result in results
    ]
    whole = _record(directory, share.name)
    unfinished = whole.with_name(f".{share.files}.new")
    _write_json(unfinished, record)
    unfinished.replace(whole)


def complete(directory: Path, names: Iterable[str]) -> bool:
    """Return whether the shares of these names have been written."""
    return all(_record(directory, name).exists() for name in names)


def leave_out(directory: Path, rank: int) -> None:
    """Note that this member does not write its share of a checkpoint. Raises OSError if the disk fails."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"share-{rank}.left-out").touch()


def left_out(directory: Path) -> bool:
    """Return whether a member does not write its share."""
    return any(directory.glob("share-*.left-out"))


def finish(directory: Path, names: Iterable[str]) -> None:
    """Write the metadata of a complete checkpoint, by one member: from then on it can be read.

    Args:
        directory: the checkpoint's.
        names: the names of its shares.
    """
    records = [_record(directory, name) for name in names]
    entries = [entry for record in records for entry in json.loads(record.read_text())]
    _write_json(directory / _CHECKSUMS, {entry["name"]: entry["crc32"] for entry in entries})
    _writer(directory).finish(_metadata(entries), [[_result(entry) for entry in entries]])
    belonging = {entry["file"] for entry in entries} | {".metadata", _CHECKSUMS}
    for path in directory.iterdir():
        # Records, and what was written by members whose record another member has replaced.
        if path.name not in belonging:
            path.unlink()


def read(directory: Path, pieces: Iterable[str] = ("state",)) -> dict[str, dict[str, Any]]:
    """Return pieces of the state in a checkpoint, on the CPU.

    Args:
        directory: the checkpoint's. If it is not finished, those of its pieces can be read that were written as shares.
        pieces: their names.

    Returns:
        The trees, by the names of the pieces.

    Raises:
        InputError: the checkpoint was written by an earlier version of offcut, or has other pieces.
        Exception: of some other kind, if it is damaged.
    """
    reader, pieces = dcp.FileSystemReader(directory), list(pieces)
    if (directory / ".metadata").exists() or not all(_record(directory, piece).exists() for piece in pieces):
        check_version(directory)
        metadata = reader.read_metadata()
        if not any(name.startswith(_SKELETON) for name in metadata.state_dict_metadata):
            raise _earlier_version(directory)
        if any(_SKELETON + piece not in metadata.state_dict_metadata for piece in pieces):
            raise InputError(
                f"The checkpoint {directory} was written for another division of the state among the members.",
                next_step="Keep the kind of session, and whether it has optimizer_copies, in all runs of a job; or "
                "move the directory away: then it begins again from its start.",
            )
        checksums = json.loads((directory / _CHECKSUMS).read_text())
    else:
        entries = [entry for piece in pieces for entry in json.loads(_record(directory, piece).read_text())]
        metadata = _metadata(entries)
        checksums = {entry["name"]: entry["crc32"] for entry in entries}
        metadata.storage_data = {(result := _result(entry)).index: result.storage_data for entry in entries}
    skeletons = {_SKELETON + piece: _room(metadata, _SKELETON + piece) for piece in pieces}
    _read_tensors(reader, metadata, skeletons, checksums)
    tensors: dict[str, torch.Tensor] = {}

    def make_room(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        tensors[name] = torch.empty(shape, dtype=dtype, device="cpu")
        return tensors[name]

    trees = {piece: put_together(skeletons[_SKELETON + piece], make_room) for piece in pieces}
    _read_tensors(reader, metadata, tensors, checksums)
    return trees


def check_version(directory: Path) -> None:
    """Raise InputError if an earlier version of offcut wrote a pipeline's checkpoint here, a file for each layer."""
    if (directory / "common.pt").exists():
        raise _earlier_version(directory)


def _earlier_version(directory: Path) -> InputError:
    return InputError(
        f"The checkpoint {directory} was written by an earlier version of offcut, in another format.",
        next_step="End the job with that version, or move the directory away: then it begins again from its start.",
    )


def _room(metadata: Metadata, name: str) -> torch.Tensor:
    there = metadata.state_dict_metadata[name]
    return torch.empty(there.size, dtype=there.properties.dtype, device="cpu")


def _read_tensors(
    reader: dcp.FileSystemReader, metadata: Metadata, tensors: dict[str, torch.Tensor], checksums: Mapping[str, int]
) -> None:
    """Fill `tensors`. ValueError if one has not the bytes that were written."""
    planner = dcp.DefaultLoadPlanner()
    planner.set_up_planner(tensors, metadata, is_coordinator=True)
    reader.set_up_storage_reader(metadata, is_coordinator=True)
    reader.read_data(planner.finish_plan(planner.create_local_plan()), planner).wait()
    for name, tensor in tensors.items():
        if _checksum(tensor) != checksums[name]:
            raise ValueError(f"the bytes of {name} are not those that were written")


def _checksum(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy())


def _write_json(path: Path, content: Any) -> None:
    with path.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())


def _metadata(entries: Iterable[dict[str, Any]]) -> Metadata:
    """Return a checkpoint's metadata, without the places of its tensors in files."""
    described: dict[str, Any] = {}
    for entry in entries:
        size = torch.Size(entry["shape"])
        chunk = ChunkStorageMetadata(torch.Size([0] * len(size)), size)
        properties = TensorProperties(dtype=getattr(torch, entry["dtype"]))
        described[entry["name"]] = TensorStorageMetadata(properties, size, [chunk])
    # With the paths, DCP's tools make a nested state, as torch.save writes it.
    return Metadata(described, planner_data={entry["name"]: tuple(entry["path"]) for entry in entries})


def _writer(directory: Path) -> dcp.FileSystemWriter:
    writer = dcp.FileSystemWriter(directory)
    writer.set_up_storage_writer(True)
    return writer


def _record(directory: Path, name: str) -> Path:
    return directory / f"share-{name}.json"


def _result(entry: dict[str, Any]) -> WriteResult:
    return WriteResult(
        index=MetadataIndex(entry["name"], torch.Size([0] * len(entry["shape"])), 0),
        size_in_bytes=entry["length"],
        storage_data=_StorageInfo(entry["file"], entry["start"], entry["length"]),
    )
