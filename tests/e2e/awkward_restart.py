"""Scripts for mode `restart` that do not behave: `awkward_restart.py stubborn|daemon|crash|serve`. No torch needed.

`stubborn` ignores SIGTERM and has a child; `daemon` has one more, in a session of its own.
`serve` runs until there is a file `$OFFCUT_JOB_DIR/end`; every launch leaves a line in `launches`.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

directory = Path(os.environ["OFFCUT_JOB_DIR"])
with (directory / "launches").open("a") as file:
    file.write(f"{os.environ['RANK']}/{os.environ['WORLD_SIZE']}\n")

if sys.argv[1] == "crash":
    raise ValueError("this script is not for the likes of you")
if sys.argv[1] in ("stubborn", "daemon"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sleep = [sys.executable, "-c", f"import time; time.sleep(10_000)  # child of {directory}"]
    subprocess.Popen(sleep)
    if sys.argv[1] == "daemon":
        subprocess.Popen(sleep, start_new_session=True)
while not (directory / "end").exists():
    time.sleep(0.02)
