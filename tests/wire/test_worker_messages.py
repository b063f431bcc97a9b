"""Messages between an agent and its workers arrive as they were sent; a bad line is refused in one sentence."""

from __future__ import annotations

import math
import socket
import typing

import pytest

from offcut.errors import ProtocolError
from offcut.wire import messages
from offcut.wire import worker_messages as m

PROGRESS = m.StepProgress(generation=2, step=3, samples=12, clock_s=9.5, own_s=0.5, loss=0.1, first=True)
FROM_WORKER: list[m.FromWorker] = [
    m.WorkerHello(worker="n1#4:0"),
    m.WorkerReady(),
    m.Beat(script_s=1.5, progress=PROGRESS),
    m.WorkerFormed(generation=2, step=3, fingerprint="abc"),
    m.WorkerBroken(generation=2, detail="the connection was closed"),
    m.WorkerLeft(),
    m.WorkerFinished(generation=2, step=3, first=True),
    m.WorkerNote(text="no space left"),
]
MEMBER = messages.GenerationMember(node="n1", incarnation=4, ranks=2)
TO_WORKER: list[m.ToWorker] = [
    messages.NewGeneration(job="a", generation=3, members=(MEMBER,), departing=(MEMBER,), store="h:1", abort=True),
    m.Leave(limit_s=0.8),
    m.Leave(limit_s=0.8, node_wanted=True),
]


def test_every_kind_is_here() -> None:
    assert {type(message) for message in FROM_WORKER} == set(typing.get_args(m.FromWorker))
    assert {type(message) for message in TO_WORKER} == set(typing.get_args(m.ToWorker))


@pytest.mark.parametrize("message", FROM_WORKER, ids=lambda message: message.kind)
def test_a_worker_s_message_arrives_as_it_was_sent(message: m.FromWorker) -> None:
    assert m.from_worker(m.encode(message)) == message


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda message: message.kind)
def test_an_agent_s_message_arrives_as_it_was_sent(message: m.ToWorker) -> None:
    assert m.to_worker(m.encode(message)) == message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense\n",
        b"null\n",
        b"[]\n",
        b"{}\n",
        b'{"kind": "unknown"}\n',
        b'{"kind": "hello"}\n',
        b'{"kind": "left", "step": 3}\n',
        b'{"kind": "beat", "progress": {"generation": -1}}\n',
        b'{"kind": "generation", "members": 1}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
    ],
)
@pytest.mark.parametrize("decode", [m.from_worker, m.to_worker])
def test_a_bad_line_is_refused_in_one_sentence(decode: typing.Callable[[bytes], object], line: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode(line)
    assert caught.value.what.startswith("A message from ")
    assert "\n" not in caught.value.what


def test_a_loss_that_is_not_finite_is_sent_as_none() -> None:
    progress = PROGRESS.model_copy(update={"loss": None})
    sent = m.Beat(progress=m.StepProgress(**{**progress.model_dump(), "loss": math.inf}))
    assert m.from_worker(m.encode(sent)) == m.Beat(progress=progress)


def test_a_long_text_is_cut_once_and_one_that_is_not_unicode_is_sent() -> None:
    note = m.from_worker(m.encode(m.WorkerNote(text="long " * 100_000)))
    assert isinstance(note, m.WorkerNote)
    assert note.text.endswith("(cut: it had 500,000 characters)")
    assert m.from_worker(m.encode(m.WorkerNote(text="a\ud800b"))) == m.WorkerNote(text="a?b")


def test_a_socket_carries_messages_both_ways_until_it_is_closed() -> None:
    ours, theirs = socket.socketpair()
    worker, agent = m.MessageSocket(ours, m.to_worker), m.MessageSocket(theirs, m.from_worker)
    worker.send(m.WorkerReady())
    agent.send(m.Leave(limit_s=0.8))
    ours.shutdown(socket.SHUT_WR)
    theirs.shutdown(socket.SHUT_WR)
    assert list(agent.messages()) == [m.WorkerReady()]
    assert list(worker.messages()) == [m.Leave(limit_s=0.8)]
    ours.close()
    theirs.close()
