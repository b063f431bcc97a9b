"""The time of a training step under DistributedDataParallel, torchft and offcut, over links of a set rate.

    python benchmarks/throughput.py [--quick] [--json] [--members 2,4] [--gbit-s 1,10] [--millions 12]

The figure: steps of the three systems take turns, in rounds of one step each, in random order. A step lasts from the
order to all members of a system until the last of them has done it, data, forward and backward pass, reduce and update
included. Each round gives one ratio of offcut's time to the other system's. Stated are the median of the ratios and
its 95 % interval (by order statistics: no distribution is assumed).

Each member is in a network namespace of its own, with a link to a switch that `tc tbf` limits in both directions; its
three processes, one for each system, wait while another has its turn. Each has one thread to compute with. Gradients go
over gloo in buckets of the same size. A step computes besides for `--compute-ms`, a third of it forward: once by
sleeping, as a host does while an accelerator works, and once by multiplying matrices for as long as one core that
does nothing else would take. All systems train the same model on the same batches, and their losses are compared.

It runs as root, and needs `ip` and `tc`. torchft comes from PyPI (`pip install offcut[bench]`); without it its figures
are null.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import setting as machine_setting
import throughput_links
from paired_ratios import interval_of_median
from stand_in_agent import StandInAgent
from throughput_systems import MODELS, PROBE_BYTES, Place, Setting, calibrated, run

from offcut.process.parent_death import die_with_parent
from offcut.torch.step.gradient_buckets import BUCKET_BYTES
from offcut.wire import rendezvous, tokens

#: The size of a bucket in all three systems, in DistributedDataParallel's unit.
BUCKET_MB = BUCKET_BYTES >> 20
COMPUTE_MS = 288.0
ROUNDS, QUICK_ROUNDS = 60, 9
WARM_UP = 2
_STEP_LIMIT_S = 120.0


class Systems:
    """The processes of all systems, for one number of members and one model."""

    def __init__(self, systems: Sequence[str], setting: Setting, links: throughput_links.Links) -> None:
        self._ends = ExitStack()
        self._orders: dict[str, list[Connection]] = {}
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch.distributed", "torch._dynamo", "offcut.torch", "throughput_systems"])
        try:
            for system in systems:
                meet = self._meeting_point(system, setting.members)
                ends = []
                for rank in range(setting.members):
                    here, there = context.Pipe()
                    place = Place(rank, links.namespace(rank), meet)
                    process = context.Process(target=run, args=(system, place, setting, there), daemon=True)
                    process.start()
                    there.close()
                    self._ends.callback(process.join)
                    self._ends.callback(process.kill)
                    ends.append(here)
                self._orders[system] = ends
        except BaseException:
            self.close()
            raise

    def _meeting_point(self, system: str, members: int) -> str:
        """Start what the system's members meet by, and return where they find it."""
        here = throughput_links.SWITCH
        if system == "ddp":
            from torch.distributed import TCPStore

            store = TCPStore(here, 0, is_master=True, wait_for_workers=False)
            self._ends.callback(lambda: store)
            return f"{here}:{store.port}"
        if system == "torchft":
            from torchft.coordination import LighthouseServer

            lighthouse = LighthouseServer(
                bind=f"{here}:0", min_replicas=members, join_timeout_ms=60_000, quorum_tick_ms=10
            )
            self._ends.callback(lighthouse.shutdown)
            return f"http://{here}:{lighthouse.address().rpartition(':')[2]}"
        directory = Path(self._ends.enter_context(tempfile.TemporaryDirectory(prefix="throughput-")))
        told, secret = directory / "store", directory / "secret"
        master = tokens.create(secret)
        command = ("-m", "offcut.service.rendezvous_server", str(told), str(secret), "--listen", here)
        ends_too = partial(die_with_parent, os.getpid())
        server = subprocess.Popen([sys.executable, *command], preexec_fn=ends_too)  # noqa: PLW1509
        self._ends.callback(server.wait)
        self._ends.callback(server.kill)
        while not told.exists():
            if server.poll() is not None:
                raise SystemExit("throughput.py: the rendezvous store did not start.")
            time.sleep(0.01)
        meeting_point = {
            "store": json.loads(told.read_text())["address"],
            "secret": rendezvous.generation_secret(master, "job", 1),
        }
        agent = StandInAgent(directory / "agent", members, meeting_point)
        self._ends.callback(lambda: agent)
        return str(directory / "agent")

    def step(self, system: str, kind: str) -> tuple[float, float]:
        """Let one system do one turn; return its seconds, and the mean of what its members return."""
        began_s = time.monotonic()
        for connection in self._orders[system]:
            connection.send(kind)
        answers: list[tuple[float, float]] = []
        for rank, connection in enumerate(self._orders[system]):
            try:
                if not connection.poll(_STEP_LIMIT_S):
                    raise SystemExit(
                        f"throughput.py: member {rank} of {system} has not answered for {_STEP_LIMIT_S} s."
                    )
                answers.append(connection.recv())
            except (EOFError, OSError):
                raise SystemExit(f"throughput.py: member {rank} of {system} has ended.") from None
        return max(at_s for at_s, _ in answers) - began_s, statistics.fmean(loss for _, loss in answers)

    def close(self) -> None:
        """End all processes."""
        with suppress(OSError):
            self._ends.close()


def rounds_of(systems: Systems, names: Sequence[str], kind: str, rounds: int) -> tuple[dict[str, list[float]], float]:
    """Return the seconds of every system's steps by round, and the largest difference of a loss from DDP's."""
    order, times, apart = random.Random(0), {name: [] for name in names}, 0.0
    for turn in range(rounds + WARM_UP):
        losses = {}
        for name in order.sample(names, len(names)):
            step_s, losses[name] = systems.step(name, kind)
            if turn >= WARM_UP:
                times[name].append(step_s)
        largest = max(abs(loss - losses["ddp"]) / losses["ddp"] for loss in losses.values())
        if not largest <= 1e-3:
            raise SystemExit(f"throughput.py: the systems do not train the same: losses {losses}.")
        apart = max(apart, largest)
    return times, apart


def measure_cell(
    systems: Systems, names: Sequence[str], setting: Setting, *, kind: str, gbit_s: float, rounds: int
) -> dict[str, Any]:
    """Return the row of one cell of the grid."""
    systems.step("ddp", "probe")
    measured = statistics.median(8e-9 * PROBE_BYTES / systems.step("ddp", "probe")[0] for _ in range(3))
    times, apart = rounds_of(systems, names, kind, rounds)
    parameters = sum(width * (width + 1) * layers for layers, width in [MODELS[setting.million_parameters]])
    layers = MODELS[setting.million_parameters][0]
    # What each link carries at the least in a reduce.
    wire_s = 4e-9 * parameters * 8 * 2 * (setting.members - 1) / setting.members / gbit_s

    def over(peer: str) -> dict[str, float] | None:
        if peer not in times:
            return None
        ratio = interval_of_median([a / b for a, b in zip(times["offcut"], times[peer], strict=True)])
        return {"median": round(ratio.median, 4), "low": round(ratio.low, 4), "high": round(ratio.high, 4)}

    return {
        "members": setting.members,
        "million_parameters": setting.million_parameters,
        "gbit_s": gbit_s,
        "measured_gbit_s": round(measured, 2),
        "compute": kind,
        "rounds": rounds,
        "network_bound": wire_s > setting.layer_s * layers,
        "least_network_ms": round(1000 * wire_s, 1),
        **{f"{name}_ms": round(1000 * statistics.median(values), 2) for name, values in times.items()},
        "over_ddp": over("ddp"),
        "over_torchft": over("torchft"),
        "loss_difference": apart,
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Return the largest medians over the grid; None where there are none."""

    def largest(key: str, among: Sequence[dict[str, Any]]) -> float | None:
        return max((row[key]["median"] for row in among if row[key] is not None), default=None)

    return {
        "max_over_ddp": largest("over_ddp", rows),
        "max_over_ddp_network_bound": largest("over_ddp", [row for row in rows if row["network_bound"]]),
        "max_over_torchft": largest("over_torchft", rows),
    }


def _line(row: dict[str, Any]) -> str:
    def ratio(key: str) -> str:
        return "–" if row[key] is None else f"{row[key]['median']:.3f} [{row[key]['low']:.3f}, {row[key]['high']:.3f}]"

    torchft = f"{row['torchft_ms']:.0f}" if "torchft_ms" in row else "–"
    return (
        f"| {row['members']} | {row['million_parameters']} M | {row['gbit_s']:g} ({row['measured_gbit_s']:g}) | "
        f"{row['compute']} | {row['ddp_ms']:.0f} | {torchft} | {row['offcut_ms']:.0f} | "
        f"{ratio('over_ddp')} | {ratio('over_torchft')} |"
    )


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="12 M parameters, 1 and 10 Gbit/s, fewer rounds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--members", type=_numbers, default=[2, 4])
    parser.add_argument("--gbit-s", type=_numbers, help="rates of the links")
    parser.add_argument("--millions", type=_numbers, help=f"parameters in millions, of {sorted(MODELS)}")
    parser.add_argument("--compute", default="sleep,real", help="what a step computes: sleep, real")
    parser.add_argument("--compute-ms", type=float, default=COMPUTE_MS, help="for how long")
    parser.add_argument("--rounds", type=int, help="steps of each system in a cell")
    arguments = parser.parse_args()
    if missing := throughput_links.lacking():
        parser.exit(2, missing + "\n")
    # The lighthouse tells of every quorum, torch of every host without a name.
    os.environ.setdefault("RUST_LOG", "error")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    throughput_links.enter_own_namespace()
    rates = arguments.gbit_s or ([1, 10] if arguments.quick else [0.5, 1, 2, 10])
    millions = [int(number) for number in arguments.millions or ([12] if arguments.quick else [1, 12, 50])]
    if not set(millions) <= set(MODELS):
        parser.error(f"--millions: {sorted(MODELS)} are there.")
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else ROUNDS)
    names = ["ddp", "torchft", "offcut"]
    machine = machine_setting.made_with("torch", "torchft", seed=0)
    if machine["torchft"] is None:
        names.remove("torchft")
        print("torchft is not installed (pip install offcut[bench]): its figures are null.", file=sys.stderr)
    rows = []
    for members in map(int, arguments.members):
        for million in millions:
            layer_s = arguments.compute_ms / 1000 / MODELS[million][0]
            setting = Setting(members, million, layer_s, calibrated(layer_s), BUCKET_MB)
            with ExitStack() as ends:
                links = throughput_links.Links(members)
                ends.callback(links.close)
                systems = Systems(names, setting, links)
                ends.callback(systems.close)
                for gbit_s in rates:
                    links.limit(gbit_s)
                    for kind in arguments.compute.split(","):
                        rows.append(measure_cell(systems, names, setting, kind=kind, gbit_s=gbit_s, rounds=rounds))
                        print(_line(rows[-1]), file=sys.stderr, flush=True)
    document = {
        "machine": machine,
        "bucket_mb": BUCKET_MB,
        "compute_ms": arguments.compute_ms,
        "rows": rows,
        "summary": summary(rows),
    }
    if arguments.json:
        print(json.dumps(document))
        return
    print(machine)
    print(
        "| members | parameters | Gbit/s (measured) | compute | DDP ms | torchft ms | offcut ms | over DDP | "
        "over torchft |\n|---|---|---|---|---|---|---|---|---|"
    )
    for row in rows:
        print(_line(row))
    print(document["summary"])


if __name__ == "__main__":
    main()
