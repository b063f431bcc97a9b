"""The messages between agents and the controller, one JSON object per WebSocket message.

An agent opens the connection and sends `Hello` first. Both sides refuse a version other than their own, and say why.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from offcut.errors import ProtocolError

#: Raised with every change that an older peer could misread.
VERSION = 6


#: The longest text for people. A longer one is cut, so that its message is not lost because of it.
_LONGEST_TEXT = 8000


def _shown(text: Any) -> Any:
    """Return the text in a form that can be sent: not too long, and valid Unicode."""
    if not isinstance(text, str):
        return text
    cut = text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
    return cut.encode(errors="replace").decode()


def _finite_or_none(number: Any) -> Any:
    return None if isinstance(number, float) and not math.isfinite(number) else number


#: A node, job, pilot or address.
Name = Annotated[str, Field(max_length=256)]
Text = Annotated[str, BeforeValidator(_shown)]
#: Beyond 2^53 a number is not the same in every program that reads it.
Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
#: None where it is not a finite number.
Loss = Annotated[float | None, BeforeValidator(_finite_or_none)]


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @cached_property
    def encoded(self) -> str:
        """The message as it is sent; encoded once for all receivers."""
        return self.model_dump_json()


class WorkerReport(Message):
    """One job's workers on the agent's node."""

    job: Name
    incarnation: Count
    ready: bool
    #: See `Ready`.
    address: Name = ""
    #: The newest generation of the job that they have been told; 0: none.
    generation: Count = 0


class Hello(Message):
    kind: Literal["hello"] = "hello"
    version: Annotated[int, Field(ge=0, le=2**31)] = VERSION
    node: Annotated[Name, Field(min_length=1)]
    #: The pilot of this agent, which no other agent on the node has.
    pilot: Name
    workers: Annotated[tuple[WorkerReport, ...], Field(max_length=1000)] = ()
    #: The highest incarnation that this agent has ever started.
    incarnation: Count = 0


class Ready(Message):
    """All ranks of the incarnation have booted and wait for a generation."""

    kind: Literal["ready"] = "ready"
    job: Name
    incarnation: Count
    #: In mode `restart`: where the other ranks find this node's first rank, should it be the first of all.
    address: Name = ""


class Exited(Message):
    """The incarnation's workers have ended."""

    kind: Literal["exited"] = "exited"
    job: Name
    incarnation: Count
    outcome: Literal["left", "finished", "failed", "lost"]
    detail: Text = ""
    #: The exit code of the process that made them end so; minus the signal's number if one ended it. None: not known.
    code: Annotated[int, Field(ge=-255, le=255)] | None = None
    #: How the disk of its files made it fail; empty where it did not.
    disk: Text = ""
    generation: Count = 0
    #: The last report of what is stable: steps, and samples since the training began.
    stable_step: Count = 0
    samples: Count = 0


class Formed(Message):
    """The first rank has done its first step in a generation; in mode `restart`, its script was launched (step 0)."""

    kind: Literal["formed"] = "formed"
    job: Name
    generation: Count
    step: Count
    #: What the script trains; see `offcut.torch`.
    fingerprint: Name = ""


class Trained(Message):
    """The first rank has passed the last step; the script runs to its end."""

    kind: Literal["trained"] = "trained"
    job: Name
    generation: Count
    step: Count
    samples: Count = 0


class Broken(Message):
    kind: Literal["broken"] = "broken"
    job: Name
    incarnation: Count
    generation: Count
    detail: Text = ""
    #: See `WorkerBroken`.
    unreachable: Annotated[tuple[Name, ...], Field(max_length=10_000)] = ()


class Progress(Message):
    """Stable steps and samples so far, from the first rank."""

    kind: Literal["progress"] = "progress"
    job: Name
    generation: Count
    step: Count
    samples: Count
    loss: Loss = None
    #: Steps and samples of the whole training, if it goes on like this; None: not known.
    total_steps: Count | None = None
    total_samples: Count | None = None
    #: The first rank's clock at the end of that step.
    clock_s: Seconds | None = None


class Pace(Message):
    """How long the slowest rank of a node has lately computed per step, in seconds, without waiting for others."""

    kind: Literal["pace"] = "pace"
    job: Name
    incarnation: Count
    generation: Count
    own_step_s: Seconds


class Note(Message):
    """A message for the job's user, for example about a checkpoint that could not be written."""

    kind: Literal["note"] = "note"
    job: Name
    text: Text


class NodeWanted(Message):
    """The batch system has told the agent to end, and workers are leaving: the others can go on without them now."""

    kind: Literal["node_wanted"] = "node_wanted"


class Heartbeat(Message):
    kind: Literal["heartbeat"] = "heartbeat"


class Launch(Message):
    """How to run one job's workers."""

    job: str
    command: tuple[str, ...]
    workdir: str
    env: dict[str, str] = {}
    setup: str = ""
    ranks_per_node: int = 1
    mode: Literal["session", "restart"] = "session"
    #: Checkpoints, logs and records of the job; on a file system that all nodes share.
    directory: str
    goal_samples: int | None = None
    checkpoint_age_s: float = 30.0
    hang_limit_s: float = 1800.0
    restart_grace_s: float = 10.0
    step_records: bool = False
    #: The workers' umask; None: the agent's own.
    umask: int | None = None


class Start(Message):
    kind: Literal["start"] = "start"
    launch: Launch
    incarnation: int


class Stop(Message):
    """End the incarnation: at its step boundary if it is in a generation, and by force after `limit_s`."""

    kind: Literal["stop"] = "stop"
    job: str
    incarnation: int
    limit_s: float


class ReleaseNode(Message):
    """The agent's node is to be released, as if the queue wanted it: let workers leave, and exit."""

    kind: Literal["release_node"] = "release_node"


class GenerationMember(Message):
    node: str
    incarnation: int
    ranks: int = 1


class NewGeneration(Message):
    """The job's newest membership. Ranks are numbered in the order of `members`.

    They find each other at `store`: the rendezvous store, to which they show `secret`, or in mode `restart` the
    address in the first member's `Ready`. `departing` are still alive and not in the generation: they save what only
    they have before they leave.
    """

    kind: Literal["generation"] = "generation"
    job: str
    generation: int
    members: tuple[GenerationMember, ...]
    departing: tuple[GenerationMember, ...] = ()
    store: str
    secret: str = Field(default="", repr=False)
    abort: bool


class GenerationChange(Message):
    """A new generation, given by how it differs from generation `base`, the last one that the agent was told of this
    job.

    Its members are those of `base` without those that `left`, then those that `joined`. `left` and `departing` name
    members of `base` by their incarnations. Nearly all of a large generation are in the next one too.
    """

    kind: Literal["generation_change"] = "generation_change"
    job: str
    generation: int
    base: int
    left: tuple[int, ...] = ()
    joined: tuple[GenerationMember, ...] = ()
    departing: tuple[int, ...] = ()
    store: str
    secret: str = Field(default="", repr=False)
    abort: bool


class Refused(Message):
    """The controller closes the connection, for this reason. A stale agent (`fatal`) exits."""

    kind: Literal["refused"] = "refused"
    reason: str
    fatal: bool


FromAgent = Annotated[
    Hello | Ready | Exited | Formed | Trained | Broken | Progress | Pace | Note | NodeWanted | Heartbeat,
    Field(discriminator="kind"),
]
ToAgent = Annotated[
    Start | Stop | NewGeneration | GenerationChange | ReleaseNode | Refused, Field(discriminator="kind")
]

_FROM_AGENT: TypeAdapter[FromAgent] = TypeAdapter(FromAgent)
_TO_AGENT: TypeAdapter[ToAgent] = TypeAdapter(ToAgent)


def from_agent(data: str | bytes) -> FromAgent:
    """Read an agent's message. ProtocolError if it is not one."""
    try:
        return _FROM_AGENT.validate_json(data)
    except ValidationError as error:
        raise ProtocolError(explain("an agent", error)) from None


def to_agent(data: str | bytes) -> ToAgent:
    """Read the controller's message to an agent. ProtocolError if it is not one."""
    try:
        return _TO_AGENT.validate_json(data)
    except ValidationError as error:
        raise ProtocolError(explain("the controller", error)) from None


def explain(sender: str, error: ValidationError) -> str:
    """Return one sentence that says which part of a message of `sender` cannot be read, and why."""
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"])) or "the message"
    return f"A message from {sender} cannot be read: {where}: {first['msg']}."


def check_version(version: int) -> None:
    """Raise ProtocolError unless the peer has this version."""
    if version != VERSION:
        raise ProtocolError(
            f"The agent speaks message version {version}, this controller {VERSION}.",
            next_step="Install the same offcut on the nodes as on the controller's machine.",
        )
