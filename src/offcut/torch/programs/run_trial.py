"""Calls `trial(params)` of a script: `python run_trial.py SCRIPT ARGUMENTS...`, once.

`python run_trial.py --serve SOCKET SCRIPT` loads the script once and forks a process for each trial; see
`offcut.agent.trial_scripts`. The script's own `if __name__ == "__main__":` does not run.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import random
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from offcut.process.fork_server import ForkServer
from offcut.torch.objective import trial_parameters
from offcut.torch.programs.worker_template import run_as_script
from offcut.wire.worker_env import ENV_LOADING

_CUDA_NOT_INITIALIZED = 3


def load(script: str) -> Callable[[dict[str, Any]], object]:
    """Load a script as a module, as an import would. Return its function `trial`."""
    # Its own name, so that other processes find its functions when they unpickle them; unless a module has that name.
    name = Path(script).stem
    if not name.isidentifier() or name in sys.modules:
        name = "__trial_script__"
    module = types.ModuleType(name)
    module.__file__ = script
    sys.modules[name] = module
    code = compile(Path(script).read_bytes(), script, "exec")
    exec(code, module.__dict__)
    trial: Callable[[dict[str, Any]], object] = module.__dict__["trial"]
    return trial


def main(argv: list[str]) -> None:
    if argv[0] == "--serve":
        _serve(Path(argv[1]), argv[2])
    else:
        _as_main_program(argv)
        load(argv[0])(dict(trial_parameters()))


def _as_main_program(argv: list[str]) -> None:
    """Set what Python sets for the script that it runs: its arguments, and where it looks for modules first."""
    sys.argv = list(argv)
    sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))


def _serve(socket: Path, script: str) -> None:
    importlib.import_module("torch").set_num_threads(1)
    # The first optimizer that a process makes imports this, which costs as much as torch itself.
    importlib.import_module("torch._dynamo")
    # Without it, a script that asks whether there is a GPU initializes CUDA, which no fork may inherit.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    os.environ[ENV_LOADING] = "1"
    _as_main_program([script])
    with _SeedsGiven() as seeds:
        trial = load(script)
    problem = _cannot_fork()
    if problem:
        sys.stderr.write(f"Each trial starts Python again: {script} {problem} while it is loaded.\n")
        sys.stderr.flush()
        os._exit(1)  # whatever its threads do

    def run(argv: list[str]) -> int:
        seeds.restore()
        return run_as_script(argv, lambda: trial(dict(trial_parameters())))

    ForkServer(socket, run).serve()


def _cannot_fork() -> str:
    """Return what the script has done that keeps this process from being forked; empty if nothing."""
    if len(os.listdir("/proc/self/task")) > 1:
        return "starts threads"
    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return ""  # CUDA's driver has not been loaded
    if cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _CUDA_NOT_INITIALIZED:
        return "initializes CUDA"
    return ""


class _SeedsGiven:
    """Random numbers of trials: those of a generator that the script seeds while it is loaded go on from that seed.

    Others are seeded from the system in each trial, as in a new process. torch's own generator always has a seed.
    """

    def __enter__(self) -> _SeedsGiven:
        self._python = self._numpy = False
        self._numpy_random = importlib.import_module("numpy").random
        self._python_seed, self._numpy_seed = random.seed, self._numpy_random.seed
        random.seed, self._numpy_random.seed = self._seed_python, self._seed_numpy
        return self

    def __exit__(self, *error: object) -> None:
        random.seed, self._numpy_random.seed = self._python_seed, self._numpy_seed
        self._python_state = random.getstate()

    def _seed_python(self, *arguments: Any, **options: Any) -> None:
        self._python = True
        self._python_seed(*arguments, **options)

    def _seed_numpy(self, *arguments: Any, **options: Any) -> None:
        self._numpy = True
        self._numpy_seed(*arguments, **options)

    def restore(self) -> None:
        """Set the generators of a process that has just been forked."""
        if self._python:  # Python itself has seeded it in the fork
            random.setstate(self._python_state)
        if not self._numpy:
            self._numpy_random.seed()


if __name__ == "__main__":
    main(sys.argv[1:])
