"""`offcut up` that fails at a chosen journal write: `crashing_up.py N before|after|full OPTIONS...`.

`before`: killed, the N-th event is lost, as if the crash had come a moment earlier; `after`: killed, it is written, and
none of its effects is carried out; `full`: from the N-th on the disk is full.
"""

import itertools
import os
import signal
import sys
from typing import Any

from offcut.cli import main as offcut
from offcut.errors import StoreError
from offcut.store.journal import Journal


def main() -> None:
    writes, when = int(sys.argv[1]), sys.argv[2]
    append = Journal.append
    seen = itertools.count(1)

    def append_or_die(self: Journal, number: int, event: Any) -> None:
        number_of_write = next(seen)
        last = number_of_write == writes
        if when == "full":
            if number_of_write >= writes:
                raise StoreError("The journal cannot be used: database or disk is full.")
            append(self, number, event)
            return
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
