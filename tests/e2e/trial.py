"""A trial of a sweep in mode `restart`, without torch: it resumes from its own file, and reports by lines in a file.

What it reports at each epoch follows from its parameters alone.
"""

import json
import os
import time
from pathlib import Path

directory = Path(os.environ["OFFCUT_JOB_DIR"])
parameters = json.loads(os.environ["OFFCUT_PARAMETERS"])
saved = directory / "epoch"
epoch = int(saved.read_text()) if saved.exists() else 0
while epoch < float(os.environ["OFFCUT_MAX_BUDGET"]):
    time.sleep(0.05)
    epoch += 1
    with (directory / "objectives.jsonl").open("a") as file:
        file.write(json.dumps({"budget": epoch, "value": abs(parameters["lr"] - 0.3) + 1 / epoch}) + "\n")
    saved.with_suffix(".new").write_text(str(epoch))
    saved.with_suffix(".new").replace(saved)
