"""Two members in a network namespace of their own, in which from one moment on every packet is lost.

Run by test_partition; argument 1: how many seconds of silence break a connection. Prints what each member sees.
"""

import os
import subprocess
import sys
import threading

import torch

from offcut.membership.generation import Generation
from offcut.torch.membership.process_group import Abandoned, Group
from offcut.torch.transport import socket_timeouts
from rendezvous import running_store


def main() -> None:
    socket_timeouts.SILENCE_S = int(sys.argv[1])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with running_store() as store:
        membership = Generation(1, ("n1#1:0", "n2#1:0"), job="job", **store.meeting_point("job", 1))
        rank = 1 if os.fork() == 0 else 0
        torch.set_num_threads(1)
        group = Group(membership, rank, threading.Condition(), lambda: False)
        assert group.gather([rank]) == [[0], [1]]
        if rank == 0:
            subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "pfifo", "limit", "0"], check=True)
        try:
            # The first member sends into the void; the other one waits to hear of it.
            group.wait(group.start_all_reduce(torch.ones(4)) if rank == 0 else group.start_receive(torch.ones(4), 0))
            print(rank, "done", flush=True)
        except Abandoned as reason:
            print(rank, reason, flush=True)
        if rank == 1:
            os._exit(0)
        os.wait()
    os._exit(0)


if __name__ == "__main__":
    main()
