"""The rendezvous store, a small process beside the controller: `python -m offcut.torch.store ADDRESS_FILE LOCK_FILE`.

Members of an epoch find each other through it. It keeps nothing that matters across epochs, so it can be replaced; and
it outlives the controller, so that training goes on while the controller is restarted. It ends by itself when no
controller has held the lock file for a while.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

import torch.distributed as dist

#: How long it waits for a controller to come back.
LINGER_S = 600.0


def _held(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address_file", type=Path, help="where to write the address and the process id")
    parser.add_argument("lock_file", type=Path, help="what a living controller holds a lock on")
    parser.add_argument("--listen", default="127.0.0.1", help="the address to listen on")
    arguments = parser.parse_args()
    listener = socket.create_server((arguments.listen, 0))
    port = listener.getsockname()[1]
    store = dist.TCPStore(
        arguments.listen, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
    )
    whole = arguments.address_file.with_suffix(".new")
    whole.write_text(json.dumps({"address": f"{arguments.listen}:{store.port}", "pid": os.getpid()}))
    whole.replace(arguments.address_file)
    seen = time.monotonic()
    while time.monotonic() - seen < LINGER_S:
        if _held(arguments.lock_file):
            seen = time.monotonic()
        if not arguments.lock_file.exists():
            break
        time.sleep(1.0)
    with suppress(FileNotFoundError):
        arguments.address_file.unlink()


if __name__ == "__main__":
    main()
