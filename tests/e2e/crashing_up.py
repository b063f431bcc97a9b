"""`offcut up` that dies by SIGKILL at a chosen journal write: `crashing_up.py N before|after OPTIONS...`.

`before`: the N-th event is lost, as if the crash had come a moment earlier; `after`: it is written, and none of its
effects is carried out.
"""

import itertools
import os
import signal
import sys
from typing import Any

from offcut.cli import main as offcut
from offcut.store.journal import Journal


def main() -> None:
    writes, when = int(sys.argv[1]), sys.argv[2]
    append = Journal.append
    seen = itertools.count(1)

    def append_or_die(self: Journal, number: int, event: Any) -> None:
        last = next(seen) == writes
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        append(self, number, event)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.append = append_or_die  # type: ignore[method-assign]
    sys.argv = ["offcut", "up", *sys.argv[3:]]
    offcut()


if __name__ == "__main__":
    main()
