"""The end of scripts that use torch.distributed themselves, in processes forked from the template."""

from __future__ import annotations

import asyncio
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
