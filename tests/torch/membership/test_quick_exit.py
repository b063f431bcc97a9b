"""A worker that leaves does not take torch apart, and still does what its script wants done at exit."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import weakref
import torch, torch._dynamo, torch.library
from offcut.torch.membership.process_exit import exit_quickly

class Mine: pass
mine = Mine()
weakref.finalize(mine, print, "the script's own finalizer ran")
before = torch.library._del_library
of_torch = [f for f in weakref.finalize._registry if f.peek()[1] is before]
assert of_torch, "torch registers no such finalizers any more: exit_quickly has lost its use"
exit_quickly()
assert not any(f.atexit for f in of_torch)
"""


def test_skipped_clean_up_at_exit() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the script's own finalizer ran" in done.stdout
