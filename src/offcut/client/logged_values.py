"""What a script has logged under a name (`offcut.torch.log(accuracy=...)`), read from its job's directory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from offcut.errors import InputError
from offcut.wire.metric_records import METRICS_FILE, read_metrics

#: As many points are returned at most, the last one always.
_MOST_POINTS = 4096
#: The columns before the values, as the controller's answer about losses calls them.
COLUMNS = ("time_s", "generation", "step", "samples")


def logged_values(job_id: str, directory: Path, name: str) -> dict[str, Any]:
    """Return what a job has logged under a name, as the controller returns losses.

    Args:
        job_id: the job.
        directory: its files.
        name: the name.

    Raises:
        InputError: it has logged nothing under that name.
    """
    records = read_metrics(directory / METRICS_FILE)
    names = sorted({known for record in records for known in record.values})
    if name not in names:
        known = f"It has logged {', '.join(names)}." if names else "Scripts log by offcut.torch.log(accuracy=accuracy)."
        raise InputError(f"{job_id} has logged no '{name}'.", next_step=known)
    there = [record for record in records if name in record.values]
    there = there[:: -max(1, -(-len(there) // _MOST_POINTS))][::-1]
    values = [record.values[name] for record in there]
    points = {column: [getattr(record, column) for record in there] for column in COLUMNS}
    return {"names": names, "points": {**points, name: [value if math.isfinite(value) else None for value in values]}}
