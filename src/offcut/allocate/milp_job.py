"""One job in a mixed-integer model, whichever way the job was modelled."""

from __future__ import annotations

from dataclasses import dataclass, field

from offcut.allocate.milp_model import Expression


@dataclass(frozen=True, slots=True)
class JobInModel:
    """What the rest of the model needs of one job."""

    #: Its number of nodes.
    size: Expression
    #: What that is worth, in units of the objective.
    value: Expression
    #: 1 where it changes its size or its nodes, else 0.
    changed: Expression
    #: The variable that counts its nodes of each class, by the class's id; empty in a model without classes.
    classes: dict[str, int] = field(default_factory=dict)
