"""The messages between an agent and its workers: one JSON object per line over a UNIX socket.

A worker connects and says `WorkerHello` first. Both ends run on one node, under one account and with the same offcut,
so there is no version; what goes over the network is in `messages`.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from offcut.errors import ProtocolError
from offcut.wire.messages import Count, Loss, Message, Name, NewGeneration, Seconds, explain

#: The longest text that a worker sends, in characters; a longer one is cut.
TEXT_LIMIT = 4096
#: Room for the note that says how much was cut off.
_NOTICE_LIMIT = 64
#: The longest line that is read, in bytes: a generation of ten thousand members is a tenth of this.
LINE_LIMIT_BYTES = 16 << 20


def _cut(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    if len(text) > TEXT_LIMIT + _NOTICE_LIMIT:
        text = f"{text[:TEXT_LIMIT]} (cut: it had {len(text):,} characters)"
    return text.encode(errors="replace").decode()


_Text = Annotated[str, BeforeValidator(_cut)]


class WorkerHello(Message):
    """The first message of a worker: its name."""

    kind: Literal["hello"] = "hello"
    worker: Name


class WorkerReady(Message):
    """The worker has booted and waits for a generation."""

    kind: Literal["ready"] = "ready"


class StepProgress(Message):
    """The progress of the training, as one worker knows it."""

    generation: Count
    #: The newest stable step, and the samples trained by then.
    step: Count
    samples: Count
    #: The worker's monotonic clock at the end of that step.
    clock_s: Seconds
    #: For how long the worker has computed in this process; waiting for other members is left out.
    own_s: Seconds
    loss: Loss = None
    #: Steps and samples of the whole training, if it goes on like this; None: not known.
    total_steps: Count | None = None
    total_samples: Count | None = None
    #: Whether the worker has rank 0.
    first: bool


class Beat(Message):
    """A heartbeat, five times a second."""

    kind: Literal["beat"] = "beat"
    #: For how long the script has not returned to its session.
    script_s: Seconds = 0.0
    #: None before the first step.
    progress: StepProgress | None = None


class WorkerFormed(Message):
    """Rank 0's first step in a new generation is done."""

    kind: Literal["formed"] = "formed"
    generation: Count
    step: Count
    #: What the script trains; see `offcut.torch`.
    fingerprint: Name = ""


class WorkerBroken(Message):
    """The generation's process group broke under the worker; `detail` is the error."""

    kind: Literal["broken"] = "broken"
    generation: Count
    detail: _Text = ""
    #: The nodes of the members to which this one cannot connect.
    unreachable: Annotated[tuple[Name, ...], Field(max_length=10_000)] = ()


class WorkerLeft(Message):
    """The worker has left the job in order and is about to exit."""

    kind: Literal["left"] = "left"


class WorkerFinished(Message):
    """The worker has passed the job's last step; its script runs to its end."""

    kind: Literal["finished"] = "finished"
    generation: Count
    step: Count
    #: Whether the worker has rank 0.
    first: bool


class WorkerNote(Message):
    """A message for the job's user."""

    kind: Literal["note"] = "note"
    text: _Text


class Leave(Message):
    """The worker is to leave at its next step boundary; the agent kills it after `limit_s`."""

    kind: Literal["leave"] = "leave"
    limit_s: Seconds
    #: The node is wanted: a worker whose state others have does not wait for a boundary that is far away.
    node_wanted: bool = False


FromWorker = WorkerHello | WorkerReady | Beat | WorkerFormed | WorkerBroken | WorkerLeft | WorkerFinished | WorkerNote
ToWorker = NewGeneration | Leave

_FROM_WORKER: TypeAdapter[FromWorker] = TypeAdapter(Annotated[FromWorker, Field(discriminator="kind")])
_TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(Annotated[ToWorker, Field(discriminator="kind")])


def encode(message: FromWorker | ToWorker) -> bytes:
    """Return the message as one line, with its newline."""
    return message.encoded.encode() + b"\n"


def from_worker(line: bytes) -> FromWorker:
    """Return the message that a worker sent as `line`.

    Raises:
        ProtocolError: The line is not a worker's message; the error says in one sentence why.
    """
    try:
        return _FROM_WORKER.validate_json(line)
    except ValidationError as error:
        raise ProtocolError(explain("a worker", error)) from None


def to_worker(line: bytes) -> ToWorker:
    """Return the message that an agent sent to a worker as `line`.

    Raises:
        ProtocolError: The line is not an agent's message; the error says in one sentence why.
    """
    try:
        return _TO_WORKER.validate_json(line)
    except ValidationError as error:
        raise ProtocolError(explain("the agent", error)) from None


Received = TypeVar("Received")


class MessageSocket(Generic[Received]):
    """A blocking connection that carries one message per line; `send` may be called from several threads.

    Args:
        connection: A connected stream socket.
        decode: Reads what the other end sends: `to_worker` in a worker, `from_worker` in an agent.
    """

    def __init__(self, connection: socket.socket, decode: Callable[[bytes], Received]) -> None:
        self._connection = connection
        self._decode = decode
        self._lock = threading.Lock()

    def send(self, message: FromWorker | ToWorker) -> None:
        """Send the message.

        Raises:
            OSError: The other end is gone.
        """
        data = encode(message)
        with self._lock:
            self._connection.sendall(data)

    def messages(self) -> Iterator[Received]:
        """Yield every message until the other end closes.

        Raises:
            OSError: The connection broke.
            ProtocolError: A line cannot be read.
        """
        with self._connection.makefile("rb") as lines:
            while line := lines.readline(LINE_LIMIT_BYTES):
                yield self._decode(line)


def connect(path: str) -> MessageSocket[ToWorker]:
    """Return a worker's connection to the agent that listens at `path`.

    Raises:
        OSError: No agent listens there.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    return MessageSocket(connection, to_worker)
