"""The time of a training step under offcut compared with plain DistributedDataParallel, with equal settings.

    python benchmarks/step_overhead.py [--quick] [--json]

Two processes with one thread each train the same model on the same shares of the same batches, over gloo on this
machine: once by DDP with a loop of its own, once by a Session whose two members get their generation from a stand-in
for the agent (the session, its line, its threads and its heartbeats are the real ones). The two take turns, and the
median of the medians counts. `work_ms` is slept in every step, as a computation on an accelerator would be.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import setting
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from stand_in_agent import StandInAgent
from torch.utils.data import TensorDataset

from offcut.torch import Session
from offcut.torch.step.batch import Batch
from offcut.wire.worker_env import ENV_AGENT, ENV_JOB_DIR, ENV_WORKER, worker_name
from rendezvous import running_store

MEMBERS = 2
BATCH = 64
SAMPLES = 4096


def model() -> torch.nn.Module:
    """84 thousand parameters."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        *(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU()),
        torch.nn.Linear(256, 10),
    )


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 64, generator=generator)
    return TensorDataset(x, x[:, :10].argmax(1))


def by_ddp(rank: int, steps: int, work_s: float, store: str) -> list[float]:
    host, _, port = store.rpartition(":")
    dist.init_process_group(
        "gloo", store=dist.TCPStore(host, int(port), is_master=False), rank=rank, world_size=MEMBERS
    )
    wrapped = torch.nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-3)
    loss_fn, (x, y), times = torch.nn.CrossEntropyLoss(), data().tensors, []
    while len(times) < steps:
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(len(times)))
        for indices in order.split(BATCH):
            began = time.perf_counter()
            mine = indices[rank::MEMBERS]
            optimizer.zero_grad()
            loss = loss_fn(wrapped(x[mine]), y[mine])
            time.sleep(work_s)
            loss.backward()
            loss.item()  # a loop that watches its loss; the session's always knows it
            optimizer.step()
            times.append(time.perf_counter() - began)
    return times[:steps]


def by_session(rank: int, steps: int, work_s: float, agent: str) -> list[float]:
    os.environ |= {ENV_AGENT: agent, ENV_WORKER: worker_name(f"n{rank}", 1, 0)}
    os.environ[ENV_JOB_DIR] = os.path.dirname(agent)
    network = model()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    loss_fn, times = torch.nn.CrossEntropyLoss(), []
    # It is never left: the end of a session is not measured.
    session = Session(network, optimizer, data(), global_batch=BATCH).__enter__()
    began = 0.0

    def step(batch: Batch) -> None:
        loss = loss_fn(session.model(batch.x), batch.y)
        time.sleep(work_s)
        session.step(loss)

    for epoch in session.epochs(10**9):
        for batch in epoch:
            step(batch)
            now = time.perf_counter()
            if began:
                times.append(now - began)
            began = now
            if len(times) == steps:
                return times
    raise AssertionError("an endless training has ended")


def _process(task: Callable[..., list[float]], rank: int, steps: int, work_s: float, where: str, out: Any) -> None:
    torch.set_num_threads(1)
    out.put((rank, task(rank, steps, work_s, where)))
    out.close()
    out.join_thread()
    os._exit(0)


def run(task: Callable[..., list[float]], steps: int, work_s: float) -> float:
    """Median milliseconds per step, of the first member; the first tenth of the steps is warm-up."""
    context = mp.get_context("fork")
    out = context.Queue()
    with tempfile.TemporaryDirectory() as directory, running_store() as store:
        if task is by_session:
            where = str(Path(directory) / "agent")
            agent = StandInAgent(Path(where), MEMBERS, store.meeting_point("job", 1))
        else:
            plain = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            where = f"127.0.0.1:{plain.port}"
        processes = [
            context.Process(target=_process, args=(task, rank, steps, work_s, where, out)) for rank in range(MEMBERS)
        ]
        for process in processes:
            process.start()
        results = dict(out.get(timeout=60) for _ in processes)
        for process in processes:
            process.join()
        if task is by_session:
            del agent
    return 1000 * statistics.median(results[0][steps // 10 :])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer turns")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    turns = 3 if arguments.quick else 9
    rows = []
    for work_ms, steps in ((0.0, 600), (50.0, 60)):
        taken: dict[str, list[float]] = {"ddp": [], "offcut": []}
        for _ in range(turns):
            taken["ddp"].append(run(by_ddp, steps, work_ms / 1000))
            taken["offcut"].append(run(by_session, steps, work_ms / 1000))
        ddp, ours = statistics.median(taken["ddp"]), statistics.median(taken["offcut"])
        rows.append(
            {
                "work_ms": work_ms,
                "steps": steps,
                "turns": turns,
                "ddp_ms": round(ddp, 3),
                "offcut_ms": round(ours, 3),
                "overhead_ms": round(ours - ddp, 3),
                "overhead_percent": round(100 * (ours / ddp - 1), 2),
                "ddp_turns_ms": [round(value, 3) for value in taken["ddp"]],
                "offcut_turns_ms": [round(value, 3) for value in taken["offcut"]],
            }
        )
    summary = {"tiny_overhead_ms": rows[0]["overhead_ms"], "percent_at_50_ms": rows[1]["overhead_percent"]}
    machine = setting.made_with("torch")
    if arguments.json:
        print(json.dumps({"machine": machine, "rows": rows, "summary": summary}))
        return
    print(machine)
    print("| work in a step | plain DDP | offcut | overhead |\n|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['work_ms']:g} ms | {row['ddp_ms']} ms | {row['offcut_ms']} ms | "
            f"{row['overhead_ms']} ms, {row['overhead_percent']} % |"
        )


if __name__ == "__main__":
    main()
