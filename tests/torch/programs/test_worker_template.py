"""The end of scripts that use torch.distributed themselves, in processes forked from the template."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from offcut.agent.restart_workers import torchrun_env
from offcut.process.fork_server import Forked
from offcut.wire.messages import GenerationMember, NewGeneration
from offcut.wire.worker_env import ENV_AGENT
from rendezvous import LIMIT_S

#: At its end a thread of its process group releases many tensors, and needs the interpreter's lock for each of them.
SCRIPT = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
dist.all_reduce_coalesced([torch.ones(1) for _ in range(20_000)])
dist.destroy_process_group()
"""
IN_A_FUNCTION = f"def main():{textwrap.indent(SCRIPT, '    ')}\nmain()\n"


@pytest.fixture(scope="module")
def template() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="offcut-test-"))
    command = [sys.executable, "-m", "offcut.torch.programs.worker_template", str(root / "fork.sock")]
    process = subprocess.Popen([*command, "--parent", str(os.getpid())])
    yield root / "fork.sock"
    process.kill()
    process.wait()
    shutil.rmtree(root)


@pytest.mark.parametrize("text", [SCRIPT, IN_A_FUNCTION], ids=["in the module", "in a function"])
def test_a_rank_ends_though_its_model_outlives_its_process_group(template: Path, tmp_path: Path, text: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(text)
    member = GenerationMember(node="n1", incarnation=1, ranks=2)
    store = f"127.0.0.1:{20_000 + os.getpid() % 10_000}"
    generation = NewGeneration(job="a", generation=1, members=(member,), store=store, abort=False)

    async def run(rank: int) -> int:
        env = {**os.environ, "OMP_NUM_THREADS": "1", **torchrun_env(generation, "n1", rank)}
        log = tmp_path / f"{rank}.log"
        forked = await Forked.start(template, [str(script)], env=env, workdir="/", log=log, patience_s=LIMIT_S)
        async with asyncio.timeout(LIMIT_S):
            return await forked.wait()

    async def both() -> list[int]:
        return await asyncio.gather(run(0), run(1))

    codes = asyncio.run(both())
    assert codes == [0, 0], [path.read_text() for path in tmp_path.glob("*.log")]


PROBE = """
import concurrent.futures, json, os, pathlib, sys, time
import torch
found = {"threads": torch.get_num_threads(), "imported": False}
try:
    import only_on_pythonpath
    found["imported"] = True
except ImportError:
    pass
pathlib.Path(sys.argv[1]).write_text(json.dumps(found))

def late():
    time.sleep(60.0 if "leave" in sys.argv else 0.3)
    pathlib.Path(sys.argv[1] + ".late").write_text("written")

concurrent.futures.ThreadPoolExecutor(1).submit(late)
if "leave" in sys.argv:
    from offcut.torch import Left
    raise Left
"""


@pytest.mark.parametrize("mode", ["session", "restart"])
def test_a_forked_script_has_the_job_s_threads_and_path_and_its_threads_end(
    template: Path, tmp_path: Path, mode: str
) -> None:
    """An upload in the background, say, is not dropped; of a worker that leaves its node it is."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "only_on_pythonpath.py").write_text("")
    script = tmp_path / "probe.py"
    script.write_text(PROBE)

    async def run(*arguments: str) -> int:
        env = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONPATH": str(tmp_path / "own")}
        if mode == "session":
            env[ENV_AGENT] = "not asked"
        argv = [str(script), *arguments]
        forked = await Forked.start(template, argv, env=env, workdir="/", log=tmp_path / "log", patience_s=LIMIT_S)
        async with asyncio.timeout(LIMIT_S):
            return await forked.wait()

    out = tmp_path / "out"
    assert asyncio.run(run(str(out))) == 0, (tmp_path / "log").read_text()
    assert json.loads(out.read_text()) == {"threads": 2, "imported": True}
    assert (tmp_path / "out.late").exists()
    assert asyncio.run(run(str(tmp_path / "left"), "leave")) == 0
    assert not (tmp_path / "left.late").exists()
