"""`offcut metrics`: prints the controller's metrics."""

from __future__ import annotations

import sys

from offcut.cli.connection import connect
from offcut.cli.options import JsonOption, StateOption
from offcut.cli.output import print_json


def metrics(state: StateOption = None, json: JsonOption = False) -> None:
    """Print the controller's metrics, as Prometheus reads them: nodes, releases, resizes, jobs, tasks, the journal.

    Example: `offcut metrics | grep offcut_release_seconds`
    """
    with connect(state) as controller:
        if json:
            print_json(controller.metrics())
        else:
            sys.stdout.write(controller.metrics_text())
