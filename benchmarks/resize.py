"""How long until a training goes on after its membership changed: offcut, torchrun elastic and torchft side by side.

    python benchmarks/resize.py [--quick] [--json] [--models 84k,25M,100M] [--systems offcut,torchrun,torchft]

Three members (one thread each, gloo, this machine) train the same network by SGD with momentum on the same data. Each
event is timed from its cause (the queue's or the user's command, the signal; for a join: the joiner's process is up and
has imported everything) until the first step of the new membership has been done on all its members. At 84k parameters
a step also sleeps 20 ms, as a computation on an accelerator would take.

A latency contains whole training steps: the step in progress and the first of the new membership. `stall_ms` is
the latency minus the steps that were done during it. `broadcast_ms` is a bare gloo broadcast of the state's bytes
(parameters and momentum) to as many members, in the same run. torchft comes from PyPI (`pip install offcut[bench]`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import setting
from resize_peers import broadcast, training
from resize_peers.systems import MEMBERS, Failed, Offcut, System, Taken, Torchft, Torchrun

EVENTS = ("join", "leave", "kill", "freeze")
WORK_S = {"84k": 0.02, "25M": 0.0, "100M": 0.0}
#: Turns of offcut by model, and of the peers, which run at 84k only.
TURNS, QUICK_TURNS = {"84k": 20, "25M": 10, "100M": 5}, {"84k": 4, "25M": 2, "100M": 1}
PEER_TURNS, QUICK_PEER_TURNS = 5, 1
FREEZE_CAP_S, QUICK_FREEZE_CAP_S = 60.0, 20.0


@dataclass(frozen=True, slots=True)
class Row:
    """One system's times for one kind of event; `p95_ms` is the largest where there are fewer than twenty."""

    system: str
    model: str
    event: str
    turns: int
    median_ms: float | None
    p95_ms: float | None
    stall_median_ms: float | None
    stall_p95_ms: float | None
    step_ms: float | None
    note: str = ""


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, round(part * len(values) + 0.5) - 1)]


def run(system: System, turns: int, freezes: int, cap_s: float) -> dict[str, list[Taken] | str]:
    """All events of one system: `turns` joins, leaves and kills, `freezes` freezes."""
    taken: dict[str, list[Taken]] = {event: [] for event in EVENTS}
    notes: dict[str, str] = {}
    system.start()
    for turn in range(turns):
        system.settle()
        taken["leave"].append(system.await_new(system.leave(turn)))
        system.settle()
        taken["join"].append(system.await_new(system.join()))
        system.settle()
        taken["kill"].append(system.await_new(system.kill(turn)))
        system.recover()
    for turn in range(freezes):
        system.settle()
        asked = system.freeze(turn)
        try:
            taken["freeze"].append(system.await_new(asked, cap_s))
        except Failed:
            notes["freeze"] = f"never within {cap_s:g} s"
            break
        system.recover()
    return {event: notes.get(event, taken[event]) for event in EVENTS}


def rows_of(system: str, model: str, taken: dict[str, list[Taken] | str]) -> list[Row]:
    rows = []
    for event in EVENTS:
        values = taken[event]
        if isinstance(values, str) or not values:
            rows.append(Row(system, model, event, 0, None, None, None, None, None, values or "not run"))
            continue
        ms, stall = [value.ms for value in values], [value.stall_ms for value in values]
        rows.append(
            Row(
                *(system, model, event, len(values)),
                *(round(statistics.median(ms), 1), round(percentile(ms, 0.95), 1)),
                *(round(statistics.median(stall), 1), round(percentile(stall, 0.95), 1)),
                round(statistics.median(value.step_ms for value in values), 1),
            )
        )
    return rows


def measure(kind: type[System], model: str, turns: int, freezes: int, cap_s: float) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="resize-") as name:
        system = kind(Path(name), model, WORK_S[model])
        try:
            taken = run(system, turns, freezes, cap_s)
        except Failed as error:
            print((Path(name) / "log").read_text()[-3000:], file=sys.stderr)
            taken = dict.fromkeys(EVENTS, f"failed: {error}")
        finally:
            with suppress(OSError):
                system.stop()
    rows = rows_of(kind.name, model, taken)
    for row in rows:
        print(_line(row), file=sys.stderr, flush=True)
    return rows


def summary(rows: list[Row], broadcasts: dict[str, float]) -> dict[str, object]:
    """The figures of the README. A ratio is of medians, the smallest over join, leave and kill."""

    def find(system: str, event: str, model: str = "84k") -> Row | None:
        return next((r for r in rows if (r.system, r.event, r.model) == (system, event, model)), None)

    def ratio(peer: str) -> float | None:
        found = []
        for event in ("join", "leave", "kill"):
            ours, theirs = find("offcut", event), find(peer, event)
            if ours is None or theirs is None or ours.median_ms is None or theirs.median_ms is None:
                return None
            found.append(theirs.median_ms / ours.median_ms)
        return round(min(found), 1)

    def p95(model: str) -> dict[str, float | None]:
        return {event: row.p95_ms if (row := find("offcut", event, model)) else None for event in EVENTS}

    def stall(model: str) -> dict[str, float]:
        return {
            event: round(row.stall_median_ms / broadcasts[model], 2)
            for event in ("join", "leave", "kill")
            if (row := find("offcut", event, model)) and row.stall_median_ms is not None
        }

    return {
        "p95_ms": p95("84k"),
        "ratio_vs_torchrun": ratio("torchrun"),
        "ratio_vs_torchft": ratio("torchft"),
        "broadcast_ms": broadcasts,
        "stall_over_broadcast": {model: stall(model) for model in broadcasts},
    }


def _line(row: Row) -> str:
    if row.median_ms is None:
        return f"| {row.system} | {row.model} | {row.event} | {row.note} | | | | |"
    return (
        f"| {row.system} | {row.model} | {row.event} | {row.turns} | {row.median_ms:.0f} | {row.p95_ms:.0f} | "
        f"{row.stall_median_ms:.0f} | {row.step_ms:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer turns, no 100M")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--models", default="84k,25M,100M")
    parser.add_argument("--systems", default="offcut,torchrun,torchft")
    arguments = parser.parse_args()
    models, systems = arguments.models.split(","), arguments.systems.split(",")
    turns, peer_turns = (QUICK_TURNS, QUICK_PEER_TURNS) if arguments.quick else (TURNS, PEER_TURNS)
    cap_s = QUICK_FREEZE_CAP_S if arguments.quick else FREEZE_CAP_S
    machine = setting.made_with("torch", "torchft", seed=0)
    print(f"{machine}\n| system | model | event | turns | median ms | p95 ms | stall ms | step ms |", file=sys.stderr)
    rows: list[Row] = []
    broadcasts: dict[str, float] = {}
    for model in models:
        if arguments.quick and model == "100M":
            continue
        size_bytes = 8 * sum(p.numel() for p in training.network(model).parameters())
        broadcasts[model] = round(statistics.median(broadcast.measure(size_bytes, MEMBERS)), 1)
        print(f"broadcast of {size_bytes} bytes to {MEMBERS - 1}: {broadcasts[model]} ms", file=sys.stderr)
        if "offcut" in systems:
            rows += measure(Offcut, model, turns[model], turns[model] if model == "84k" else 0, cap_s)
        if model == "84k":
            if "torchft" in systems and machine["torchft"]:
                rows += measure(Torchft, model, peer_turns, peer_turns, cap_s)
            if "torchrun" in systems:
                rows += measure(Torchrun, model, peer_turns, 1, cap_s)
    document = {
        "machine": machine,
        "members": MEMBERS,
        "settings": {"torchrun": Torchrun.settings, "torchft": Torchft.settings},
        "rows": [asdict(row) for row in rows],
        "summary": summary(rows, broadcasts),
    }
    if arguments.json:
        print(json.dumps(document))
        return
    print(f"{machine}\n{document['settings']}")
    print(
        "| system | parameters | event | turns | median ms | p95 ms | stall ms | a step, ms |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for row in rows:
        print(_line(row))
    print(document["summary"])


if __name__ == "__main__":
    main()
