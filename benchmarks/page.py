"""The page at 10,000 nodes and 1,000 jobs: how soon it is there, whether it stays responsive, what its readers cost.

    python benchmarks/page.py [--quick] [--json]

The real controller object and its page, in a process of their own. Nodes and jobs are written into the state, and five
times a second some nodes change hands, as resizes do. The distribution's Chromium is the browser. Figures:

- `paint_10000_ms`: first contentful paint of the overview as the browser measures it (`PerformancePaintTiming`), from
  the begin of the navigation: the median of 5 browsers without a cache.
- `long_tasks_per_min`: tasks of more than 50 ms (`PerformanceObserver`, `longtask`) while the overview is open, without
  its first 3 s, per minute.
- `cpu_share_200_pages`: processor time of the controller's process with 200 connections that get live updates, less
  that with none, as a share of one core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import shutil
import socket
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import psutil
import setting
from playwright.async_api import async_playwright

from offcut.cluster.base import Cluster
from offcut.control import JobState, NodeState, Settings
from offcut.model import Job, Sizes
from offcut.process import clocks
from offcut.service.controller import Controller
from offcut.service.page import token_file
from offcut.service.page.server import PageServer
from offcut.service.paths import StatePaths
from offcut.store import Journal

NODES, JOBS, PAGES, BROWSERS = 10_000, 1_000, 200, 5
CHANGES_PER_S, NODES_PER_CHANGE = 5, 20
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
#: Counts long tasks from the first instant on.
COUNT = """
window.longTasks = [];
new PerformanceObserver((list) => list.getEntries().forEach((task) => window.longTasks.push(task.startTime)))
  .observe({ type: "longtask", buffered: true });
"""


class SilentCluster:
    """A batch system of which the page asks nothing that takes time."""

    def describe(self) -> dict[str, Any]:
        return {"kind": "none"}

    async def statistics(self) -> dict[str, Any]:
        return {"hand_backs": []}


def fill(controller: Controller) -> None:
    """Write nodes and jobs into the state."""
    state = controller.state
    for i in range(JOBS):
        job = Job(id=f"training-{i}", name=f"training-{i}", command=("train.py",), sizes=Sizes.parse("1:64"))
        state.jobs[job.id] = JobState(job, "running", 0.0)
    for i in range(NODES):
        held = i % 10 != 0
        state.nodes[f"n{i:05}"] = NodeState(
            f"n{i:05}",
            "up" if held else "idle",
            0.0,
            job=f"training-{i % JOBS}" if held else None,
            worker="member" if held else "none",
        )


async def serve(root: Path, pipe: Connection) -> None:
    paths = StatePaths(root)
    paths.prepare()
    journal = Journal(paths.journal)
    controller = Controller(journal.load(Settings()), journal, cast(Cluster, SilentCluster()), paths)
    fill(controller)
    listener = socket.create_server(("127.0.0.1", 0))
    page = PageServer(controller, journal, paths, None, 320)
    serving = asyncio.create_task(page.serve(listener))
    token = token_file.current_token(paths.page_key, paths.page_token, clocks.wall_s())
    pipe.send((listener.getsockname()[1], token))
    chosen, names = random.Random(0), list(controller.state.nodes)
    while not serving.done():
        await asyncio.sleep(1 / CHANGES_PER_S)
        for name in chosen.sample(names, NODES_PER_CHANGE):
            node = controller.state.nodes[name]
            if node.job is not None:
                node.job = f"training-{chosen.randrange(JOBS)}"
        for changed in controller.on_change:
            changed()


def run_server(root: str, pipe: Connection) -> None:
    asyncio.run(serve(Path(root), pipe))


async def paint_ms(url: str, watch_s: float) -> tuple[list[float], float]:
    """Return the first paints, and the long tasks per minute of the last browser's page."""
    paints, found = [], 0.0
    async with async_playwright() as playwright:
        for i in range(BROWSERS):
            browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(ARGUMENTS))
            page = await browser.new_page(viewport={"width": 1280, "height": 900})
            await page.add_init_script(COUNT)
            await page.goto(url)
            await page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
            paints.append(await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            if i == BROWSERS - 1:
                await page.wait_for_timeout(1000 * (3 + watch_s))
                tasks = await page.evaluate("window.longTasks.filter((start) => start > 3000).length")
                found = 60 * tasks / watch_s
            await browser.close()
    return paints, found


async def cpu_share(process: psutil.Process, port: int, token: str, watch_s: float) -> tuple[float, float]:
    """Return the share of a core that the server takes without a reader, and with `PAGES`."""

    async def watch() -> float:
        before = process.cpu_times()
        await asyncio.sleep(watch_s)
        after = process.cpu_times()
        return (after.user + after.system - before.user - before.system) / watch_s

    async def read() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET /updates?view=overview HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
        writer.write(head.encode())
        while await reader.read(1 << 16):
            pass

    alone = await watch()
    readers = [asyncio.create_task(read()) for _ in range(PAGES)]
    await asyncio.sleep(3.0)
    assert not any(reader.done() for reader in readers), "a connection was refused"
    together = await watch()
    for reader in readers:
        reader.cancel()
    return alone, together


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="Watch for 10 s instead of 60.")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if shutil.which("chromium") is None:
        sys.exit("There is no chromium; see scripts/install-chromium.")
    machine = setting.made_with("playwright", "fastapi", "uvicorn")
    watch_s = 10.0 if given.quick else 60.0
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory(prefix="offcut-page-") as root:
        server = multiprocessing.get_context("spawn").Process(target=run_server, args=(root, theirs), daemon=True)
        server.start()
        port, token = ours.recv()
        began_s = time.perf_counter()
        paints, long_tasks = asyncio.run(paint_ms(f"http://127.0.0.1:{port}/?token={token}", watch_s))
        alone, together = asyncio.run(cpu_share(psutil.Process(server.pid), port, token, watch_s))
        server.kill()
        server.join()
    summary = {
        "paint_10000_ms": round(statistics.median(paints), 1),
        "long_tasks_per_min": round(long_tasks, 1),
        "cpu_share_200_pages": round(together - alone, 3),
    }
    out = sys.stderr if given.json else sys.stdout
    print(machine, file=sys.stderr)
    print(f"first contentful paint: {', '.join(f'{ms:.0f}' for ms in paints)} ms", file=out)
    print(f"long tasks: {long_tasks:.1f} per minute", file=out)
    print(f"processor: {100 * alone:.1f} % of a core without readers, {100 * together:.1f} % with {PAGES}", file=out)
    if given.json:
        rows = {"paints_ms": paints, "cpu_alone": alone, "cpu_200_pages": together, "s": time.perf_counter() - began_s}
        print(json.dumps({"machine": machine, "rows": rows, "summary": summary}, indent=2))


if __name__ == "__main__":
    main()
