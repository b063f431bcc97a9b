"""The cost of one query of the queue on a large machine: reading Slurm's output, and deciding.

    python benchmarks/slurm_scale.py [--quick] [--json] [--nodes 10000] [--jobs 5000]

The outputs are generated, in the shape in which Slurm prints them: text, the JSON of 22.05 (every field that it has),
and the JSON of 23.11. Each form is read in a process of its own, whose peak of memory above its start counts. What
slurmctld itself spends is not measured here.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import setting

from offcut.cluster.slurm import idle_nodes, schema, text
from offcut.cluster.slurm.records import PartitionRow, ReservationRow, View
from offcut.cluster.slurm.site import make_site

SEED = 1
DATA = Path(__file__).parents[1] / "tests" / "cluster" / "slurm" / "data"
FORMS = ("text", "json of 22.05", "json of 23.11")


def generate(form: str, nodes: int, jobs: int) -> tuple[str, str]:
    """Return the commands' output about nodes and jobs: half of the jobs wait, a quarter have a planned start."""
    draw = random.Random(SEED)
    states = [draw.choices(("allocated", "idle", "planned", "drained"), (90, 6, 3, 1))[0] for _ in range(nodes)]
    rows = []
    for job in range(jobs):
        waits, size, first = draw.random() < 0.5, draw.choice((1, 2, 4, 16, 64)), draw.randrange(nodes - 64)
        hosts = f"nid[{first:05d}-{first + size - 1:05d}]" if size > 1 else f"nid{first:05d}"
        start_s = 1_000_000 + draw.randrange(86400)
        rows.append((job, waits, size, hosts, start_s, waits and draw.random() < 0.5))
    if form == "text":
        shown_nodes = "".join(f"nid{i:05d}|{state}\n" for i, state in enumerate(states))
        lines = []
        for job, waits, size, hosts, start_s, plan in rows:
            state, runs_on, planned = ("PENDING", "", hosts if plan else "(null)") if waits else ("RUNNING", hosts, "")
            begins = start_s if plan or not waits else "N/A"
            where = f"{job}|{state}|main|{size}|{runs_on}||{planned}|{begins}|{start_s + 3600}"
            lines.append(f"{where}|user{job % 300}|Priority|N/A|0\n")
        return shown_nodes, "".join(lines)
    old = form == "json of 22.05"
    words = {"planned": ["idle", "PLANNED"], "drained": ["idle", "DRAIN"]}
    whole_node = json.loads((DATA / "sinfo-22.05.json").read_text())["nodes"][0] if old else {"partitions": ["main"]}
    whole_job = json.loads((DATA / "squeue-22.05.json").read_text())["jobs"][0] if old else {}

    def number(value: float) -> Any:
        return value if old else {"set": True, "infinite": False, "number": value}

    node_rows = []
    for i, state in enumerate(states):
        word, *flags = words.get(state, [state])
        shape = {"state": word, "state_flags": flags} if old else {"state": [word.upper(), *flags]}
        node_rows.append({**whole_node, "name": f"nid{i:05d}", **shape})
    job_rows = [
        {
            **whole_job,
            "job_id": job,
            "user_name": f"user{job % 300}",
            "name": f"train_{job}",
            "partition": "main",
            "job_state": ("PENDING" if waits else "RUNNING") if old else ["PENDING" if waits else "RUNNING"],
            "node_count": number(size),
            "nodes": "" if waits else hosts,
            "required_nodes": "",
            **({} if old else {"scheduled_nodes": hosts if plan else ""}),
            "start_time": number(start_s if plan or not waits else 0),
            "end_time": number(start_s + 3600),
            "preempt_time": number(0),
            "state_reason": "Priority",
        }
        for job, waits, size, hosts, start_s, plan in rows
    ]
    return json.dumps({"nodes": node_rows}), json.dumps({"jobs": job_rows})


def peak_kib(*, reset: bool = False) -> int:
    """The most memory that this process has had resident since it was last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def measure(form: str, files: tuple[Path, Path], repeats: int, answer: Any) -> None:
    """Read and decide `repeats` times; seconds of the first look and of a later one, and the peak of memory."""
    reader = text if form == "text" else schema
    site = make_site({"partition": "main"}, "benchmark")
    partition = PartitionRow(
        name="main", up=True, nodes="", max_time_s=None, preempt_mode="CANCEL", grace_s=0.0, priority_tier=1
    )
    reserved = tuple(
        ReservationRow(name=f"r{i}", nodes=f"nid[{i:05d}-{i + 50:05d}]", start_s=2e6, end_s=3e6) for i in range(20)
    )
    before_kib = peak_kib(reset=True)
    shown_nodes, shown_jobs = (file.read_text() for file in files)
    times: dict[str, list[float]] = {"read_s": [], "decide_s": []}
    safe = 0
    for _ in range(repeats):
        began_s = time.perf_counter()
        rows = reader.read_nodes(shown_nodes)
        found = text.read_jobs(shown_jobs) if form == "text" else schema.read_jobs(shown_jobs)[0]
        read_s = time.perf_counter()
        waiting = tuple(job for job in found if job.state == "PENDING")
        view = View(time_s=1_000_000.0, nodes=rows, waiting=waiting, own={}, reservations=reserved, partition=partition)
        safe = sum(candidate.safe for candidate in idle_nodes.candidates(view, site))
        times["read_s"].append(read_s - began_s)
        times["decide_s"].append(time.perf_counter() - read_s)
    answer.put(
        {
            "form": form,
            "input_mib": (len(shown_nodes) + len(shown_jobs)) / 2**20,
            "first_s": times["read_s"][0] + times["decide_s"][0],
            **{name: statistics.median(values) for name, values in times.items()},
            "peak_mib": (peak_kib() - before_kib) / 1024,
            "safe": safe,
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=5_000)
    given = parser.parse_args()
    machine = setting.made_with()
    print(f"{machine}; {given.nodes} nodes, {given.jobs} jobs, seed {SEED}", file=sys.stderr)
    rows = []
    fresh = multiprocessing.get_context("spawn")
    for form in FORMS:
        answer = fresh.Queue()
        with tempfile.TemporaryDirectory() as scratch:
            files = Path(scratch, "nodes"), Path(scratch, "jobs")
            for file, shown in zip(files, generate(form, given.nodes, given.jobs), strict=True):
                file.write_text(shown)
            process = fresh.Process(target=measure, args=(form, files, 3 if given.quick else 9, answer))
            process.start()
            rows.append(answer.get(timeout=300))
            process.join()
        row = rows[-1]
        cost = f"first look {row['first_s']:.3f} s   then: read {row['read_s']:.3f} s, decide {row['decide_s']:.3f} s"
        print(
            f"{form:14} {row['input_mib']:5.1f} MiB   {cost}   peak {row['peak_mib']:.0f} MiB   {row['safe']} safe",
            file=sys.stderr if given.json else sys.stdout,
        )
    if given.json:
        summary = {"look_s": rows[0]["read_s"] + rows[0]["decide_s"], "peak_mib": rows[0]["peak_mib"]}
        print(json.dumps({"machine": machine, "seed": SEED, "rows": rows, "summary": summary}, indent=2))


if __name__ == "__main__":
    main()
