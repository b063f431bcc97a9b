"""Messages are read as they were written; unknown fields are refused with a sentence."""

from __future__ import annotations

import math
import typing

import pytest

from offcut.errors import ProtocolError
from offcut.wire import messages as m

FROM_AGENT: list[m.Message] = [
    m.Hello(node="n1", pilot="p", workers=(m.WorkerReport(job="a", incarnation=1, ready=True),)),
    m.Ready(job="a", incarnation=1),
    m.Exited(job="a", incarnation=1, outcome="lost", detail="killed by signal 9", generation=2, stable_step=3),
    m.Formed(job="a", generation=2, step=3),
    m.Trained(job="a", generation=2, step=3),
    m.Broken(job="a", incarnation=1, generation=2, detail="ü"),
    m.Progress(job="a", generation=2, step=3, samples=4, loss=0.1, clock_s=12.5),
    m.Pace(job="a", incarnation=1, generation=2, own_step_s=0.05),
    m.Note(job="a", text="no space left"),
    m.NodeWanted(),
    m.Heartbeat(),
]
LAUNCH = m.Launch(job="a", command=("t.py",), workdir="/w", env={"A": "1"}, directory="/d", goal_samples=9)
TO_AGENT: list[m.Message] = [
    m.Start(launch=LAUNCH, incarnation=4),
    m.Stop(job="a", incarnation=4, limit_s=0.0),
    m.NewGeneration(
        job="a", generation=3, members=(m.GenerationMember(node="n1", incarnation=4, ranks=2),), store="h:1", abort=True
    ),
    m.GenerationChange(
        job="a",
        generation=4,
        base=3,
        left=(4,),
        joined=(m.GenerationMember(node="n2", incarnation=5),),
        store="h:1",
        abort=False,
    ),
    m.ReleaseNode(),
    m.Refused(reason="stale", fatal=True),
]


def kinds(union: object) -> set[type]:
    return set(typing.get_args(typing.get_args(union)[0]))


def test_every_kind_is_here():
    assert {type(message) for message in FROM_AGENT} == kinds(m.FromAgent)
    assert {type(message) for message in TO_AGENT} == kinds(m.ToAgent)


@pytest.mark.parametrize("message", FROM_AGENT, ids=lambda message: message.kind)
def test_what_an_agent_says_is_what_the_controller_hears(message):
    assert m.from_agent(message.model_dump_json()) == message
    assert m.from_agent(message.model_dump_json().encode()) == message


@pytest.mark.parametrize("message", TO_AGENT, ids=lambda message: message.kind)
def test_what_the_controller_says_is_what_an_agent_hears(message):
    assert m.to_agent(message.model_dump_json()) == message


def test_a_loss_that_is_not_a_number_is_sent_as_none():
    message = m.Progress(job="a", generation=1, step=1, samples=1, loss=math.nan)
    assert m.from_agent(message.model_dump_json()).loss is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the message: Invalid JSON"),
        ("nonsense", "the message: Invalid JSON"),
        ("[]", "the message: Input should be"),
        ('{"kind": "start"}', "does not match any of the expected tags"),
        ("{}", "Unable to extract tag using discriminator 'kind'"),
        ('{"kind": "ready", "job": "a"}', "ready.incarnation: Field required"),
        ('{"kind": "ready", "job": "a", "incarnation": "x"}', "ready.incarnation: Input should be a valid integer"),
        ('{"kind": "heartbeat", "more": 1}', "heartbeat.more: Extra inputs are not permitted"),
        ('{"kind": "exited", "job": "a", "incarnation": 1, "outcome": "?"}', "exited.outcome: Input should be 'left'"),
    ],
)
def test_unknown_fields_are_refused(text, sentence):
    with pytest.raises(ProtocolError) as caught:
        m.from_agent(text)
    assert caught.value.what.startswith("A message from an agent cannot be read: ")
    assert sentence in caught.value.what
    assert "\n" not in str(caught.value)


def test_messages_of_one_side_are_refused_on_the_other():
    with pytest.raises(ProtocolError, match="A message from the controller cannot be read"):
        m.to_agent(FROM_AGENT[0].model_dump_json())
    with pytest.raises(ProtocolError, match="A message from an agent cannot be read"):
        m.from_agent(TO_AGENT[0].model_dump_json())


def test_another_version_is_refused():
    m.check_version(m.VERSION)
    with pytest.raises(ProtocolError) as caught:
        m.check_version(m.VERSION + 1)
    assert str(caught.value) == (
        f"The agent speaks message version {m.VERSION + 1}, this controller {m.VERSION}. "
        "Install the same offcut on the nodes as on the controller's machine."
    )
