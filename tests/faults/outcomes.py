"""The outcomes of faults, as the matrix states them and a test checks them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fate(Enum):
    """What happens to a worker that was struck."""

    DIES = "the agent reports that a signal ended it"
    FROZEN = "its agent ends it, and reports that it froze"
    GOES_WITH_AGENT = "it ends with its agent: the controller gives the node up"
    FENCED = "its node is given up while it lives; when it is back it ends, and nothing that it does counts"
    STAYS = "it is a member to the end; no worker ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`text` is the row of the page; the rest is what it says.

    In every case: the losses are the undisturbed training's, every sample counts once, each fault strikes, members that
    were not struck stay to the end, and what has a checkpoint's name can be read.
    """

    text: str
    fate: Fate
    #: Another worker becomes a member in the struck one's place.
    replaced: bool = True
    #: A generation comes of it; its members are all that were in the one before but those that were ended.
    renewed: bool = True
    #: The struck worker has never been a member.
    newcomer: bool = False
    #: Some survivors have applied the step and some have not; it is not done again.
    ahead: bool = False
    #: All that had the state were lost, and the job went on from the checkpoint before the one that was interrupted.
    from_checkpoint: bool = False
    #: How many steps at most may have been applied twice.
    redone: int = 1


REDO = "the others redo the step; a new worker joins"
GO_ON = "the others go on; a new worker is started"

KILLED = Outcome(text=REDO, fate=Fate.DIES)
KILLED_BEFORE_READY = Outcome(text=GO_ON, fate=Fate.DIES, renewed=False, newcomer=True, redone=0)
KILLED_AS_JOINER = Outcome(text=GO_ON, fate=Fate.DIES, newcomer=True)
KILLED_FORMING = Outcome(text="the others re-form under the next generation", fate=Fate.DIES)
KILLED_GIVING = Outcome(text="another giver, or the next generation's", fate=Fate.DIES)
AHEAD = "survivors at different steps: the one behind takes the state of the one ahead"
KILLED_AHEAD = Outcome(text=AHEAD, fate=Fate.DIES, ahead=True, redone=0)
BEHIND = Outcome(text=AHEAD, fate=Fate.STAYS, ahead=True, redone=0)
SAME = Outcome(text="the same members re-form", fate=Fate.STAYS)
SILENT = Outcome(text="connections break after 20 s; the same members re-form", fate=Fate.STAYS)
NOTHING = Outcome(text="nothing: all wait", fate=Fate.STAYS, renewed=False, redone=0)
FROZEN = Outcome(text="the agent ends it; " + REDO, fate=Fate.FROZEN)
FROZEN_AS_JOINER = Outcome(text="the agent ends it; " + GO_ON, fate=Fate.FROZEN, newcomer=True)
FENCED = Outcome(text="the controller gives it up; when it returns it is fenced", fate=Fate.FENCED)
FENCED_PUBLISHING = Outcome(
    text="the controller gives it up; when it returns it is fenced, and newer checkpoints stay", fate=Fate.FENCED
)
AGENT_KILLED = Outcome(text=REDO, fate=Fate.GOES_WITH_AGENT)
AGENT_KILLED_AS_JOINER = Outcome(text=GO_ON, fate=Fate.GOES_WITH_AGENT, newcomer=True)
HALF = Outcome(text="half a checkpoint is never published", fate=Fate.DIES)
STAYS = Outcome(text="the checkpoint of before stays", fate=Fate.DIES)
USED = Outcome(text="the job goes on from the checkpoint of before", fate=Fate.DIES, from_checkpoint=True, redone=200)
ENDED = Outcome(text="the others end the training", fate=Fate.DIES, replaced=False, renewed=True)
