"""One job in a mixed-integer model, over counts or over node classes."""

from __future__ import annotations

from dataclasses import dataclass, field

from offcut.allocate.milp_model import Expression


@dataclass(frozen=True, slots=True)
class JobInModel:
    """The variables and expressions of one job that the rest of the model uses."""

    #: Its number of nodes.
    size: Expression
    #: The value of that size, in units of the objective.
    value: Expression
    #: 1 where it changes its size or its nodes, else 0.
    changed: Expression
    #: The variable that counts its nodes of each class, by the class's id; empty in a model without classes.
    classes: dict[str, int] = field(default_factory=dict)
