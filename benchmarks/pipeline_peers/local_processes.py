"""Run a function on several ranks of this machine, for tests and benchmarks of pipeline plans, with a time limit.

The function to run is named as `file.py:function` and called as `function(rank, world, argument)` within an
initialised group. Processes are forked from a server that has PyTorch loaded, so starting one takes milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from offcut.errors import OffcutError


class RankError(OffcutError):
    """A rank failed, or did not finish in time; carries what it said."""


def run_local(where: str, world: int, argument: Any = None, *, timeout_s: float = 60.0) -> list[Any]:
    """Run `where` on `world` ranks (gloo, one thread each) and return what each returned, in rank order.

    Raises RankError naming the first rank that failed; none of the processes outlives the call.
    """
    results = outcomes(where, world, argument, timeout_s=timeout_s)
    for rank, (ok, value) in enumerate(results):
        if not ok:
            raise RankError(f"rank {rank} of {world} failed: {value}", next_step="See the rank's own words above.")
    return [value for _, value in results]


def outcomes(where: str, world: int, argument: Any = None, *, timeout_s: float = 60.0) -> list[tuple[bool, Any]]:
    """Run the same, but return a failure as an outcome: (True, value) or (False, why) per rank."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pipeline_peers.preloaded"])
    with tempfile.TemporaryDirectory(prefix="offcut-pipeline-") as folder:
        ends: list[Connection] = []
        processes = []
        for rank in range(world):
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_worker, args=(where, rank, world, argument, f"{folder}/store", timeout_s, theirs), daemon=True
            )
            process.start()
            theirs.close()
            ends.append(mine)
            processes.append(process)
        results: list[tuple[bool, Any]] = [(False, f"did not finish within {timeout_s:g} s")] * world
        open_ends = dict(zip(ends, range(world), strict=True))
        deadline = time.monotonic() + timeout_s
        while open_ends and time.monotonic() < deadline:
            for end in wait(list(open_ends), timeout=max(0.0, deadline - time.monotonic())):
                assert isinstance(end, Connection)
                rank = open_ends.pop(end)
                try:
                    results[rank] = pickle.loads(end.recv_bytes())
                except EOFError:
                    results[rank] = (False, "the process died")
        for process in processes:
            process.join(timeout=2.0 if not open_ends else 0.1)
            if process.is_alive():
                process.kill()
                process.join()
        return results


def _worker(where: str, rank: int, world: int, argument: Any, store: str, timeout_s: float, end: Connection) -> None:
    import torch
    import torch.distributed as dist

    from offcut.torch.pipeline.layer_chain import load_function

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=world, timeout=timedelta(seconds=timeout_s)
        )
        path, _, name = where.rpartition(":")
        value = load_function(Path(path), name)(rank, world, argument)
        end.send_bytes(pickle.dumps((True, value)))
        if dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
    except BaseException as error:
        said = "".join(traceback.format_exception_only(error)).strip()
        end.send_bytes(pickle.dumps((False, said)))
        # At once: the group's own clean-up would wait for peers that wait for this rank.
        end.close()
        os._exit(1)
