"""A stand-in for the agents of a job whose members never change, for benchmarks of training steps."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from offcut.wire.messages import GenerationMember, NewGeneration
from offcut.wire.worker_messages import MessageSocket, WorkerReady, from_worker


class StandInAgent:
    """Tells every worker that says it is ready the same generation.

    Args:
        path: the UNIX socket to listen on, for the workers of all nodes.
        members: how many workers there are, on the nodes n0, n1, ...
        meeting_point: where they meet: the `store` and `secret` of a NewGeneration.
    """

    def __init__(self, path: Path, members: int, meeting_point: dict[str, str]) -> None:
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(path))
        self._server.listen(members)
        self._generation = NewGeneration(
            job="job",
            generation=1,
            members=tuple(GenerationMember(node=f"n{rank}", incarnation=1) for rank in range(members)),
            **meeting_point,
            abort=False,
        )
        threading.Thread(target=self._accept, args=(members,), daemon=True).start()

    def _accept(self, members: int) -> None:
        for _ in range(members):
            connection, _ = self._server.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        agent = MessageSocket(connection, from_worker)
        for message in agent.messages():
            if isinstance(message, WorkerReady):
                agent.send(self._generation)
