"""A site's file: what offcut may do on one Slurm. The table `[slurm]` of the controller's configuration."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from offcut.cluster.slurm import limits
from offcut.errors import InputError

#: Characters of Slurm's own names. Nothing here ever reaches a shell; this catches typing errors.
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.+-]*$"

Name = Annotated[str, StringConstraints(pattern=NAME, max_length=120)]
NameOrNone = Annotated[str, StringConstraints(pattern=rf"^$|{NAME}", max_length=120)]
Mode = Literal["preemptible", "backfill"]

#: How long a pilot may hold a node whose window has no known end.
LONGEST_S: dict[Mode, float] = {"preemptible": 4 * 3600.0, "backfill": 30 * 60.0}


class SlurmSite(BaseModel):
    """What an operator allows offcut on one Slurm."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    partition: Name = Field(description="Where pilots are submitted.")
    mode: Mode | None = Field(
        None,
        description="'preemptible': Slurm cancels our pilots when it wants their nodes; refused where Slurm does not. "
        "'backfill': nothing special; pilots are short and leave by themselves. Default: 'preemptible' where Slurm is "
        "shown to preempt them, else 'backfill'.",
    )
    account: NameOrNone = Field("", description="The account that is charged for pilots; default: yours.")
    qos: NameOrNone = Field("", description="Of pilots.")
    constraint: str = Field("", max_length=200, description="Features that a node must have, as for sbatch.")
    gres: str = Field("", max_length=200, description="Generic resources of each pilot, e.g. 'gpu:4'.")
    nodes: str = Field("", description="Claim only these nodes: a host list.")
    exclude: str = Field("", description="Never claim these nodes: a host list.")

    interval_s: float = Field(30.0, ge=0.2, description="Seconds from one query of the queue to the next.")
    command_limit_s: float = Field(20.0, gt=0, description="A Slurm command that takes longer is abandoned.")
    reading: Literal["text", "json"] = Field("text", description="Which output of Slurm's commands is read.")

    least_hole_s: float = Field(180.0, ge=60, description="Shorter windows are not claimed.")
    longest_s: float | None = Field(
        None, ge=60, description="A pilot's longest time limit; default: 4 h preemptible, 30 min backfill."
    )
    margin_s: float = Field(30.0, ge=0, description="A pilot ends this long before the window's known end.")
    pending_limit_s: float = Field(
        90.0,
        gt=0,
        description="A pilot that has not started by then is withdrawn. With other jobs in its partition it may wait "
        "for a pass of Slurm's backfill (bf_interval, 30 s by default).",
    )
    bench_s: float = Field(600.0, ge=0, description="A node that did not take its pilot is not claimed for this long.")

    max_nodes: int | None = Field(None, ge=1, description="Never hold more.")
    max_share: float = Field(1.0, gt=0, le=1, description="Never hold more than this share of the idle nodes.")
    max_submissions_per_minute: int = Field(60, ge=1, description="Of pilots.")
    quiet: Annotated[tuple[str, ...], AfterValidator(limits.check_quiet)] = Field(
        (), description="Times at which no node is held: 'Mon-Fri 08:00-18:00', local time."
    )
    pause_after: int = Field(3, ge=1, description="Failures in a row after which offcut pauses, and says why.")
    pause_s: float = Field(60.0, gt=0, description="The first pause; each further one is twice as long, up to 1 h.")

    launch: Literal["auto", "exec", "srun"] = Field(
        "auto",
        description="How the pilot starts the agent. A job step (srun) hears at once when a GraceTime begins; 'auto' "
        "uses one where the partition has a GraceTime.",
    )
    leave_limit_s: float = Field(0.8, gt=0, description="How long workers may take to leave a wanted node.")
    setup: str = Field("", description="Shell lines at the start of the pilot: modules, for instance.")
    python: str = Field(sys.executable, min_length=1, description="A Python on the nodes, with offcut installed.")
    node_dir: Path = Field(Path("/tmp"), description="A local directory on the nodes, for a socket.")
    worker_env: dict[str, str] = Field({}, description="Added to the environment of every worker.")
    worker_template: Path | None = Field(None, description="Socket of a running worker template on the node.")

    @field_validator("constraint", "gres", "nodes", "exclude")
    @classmethod
    def _plain(cls, text: str) -> str:
        if re.search(r"[\s;$`\\'\"<>]", text) or text.startswith("-"):
            raise ValueError(f"'{text}' has a character that belongs to a shell, not to Slurm")
        return text

    @property
    def longest(self) -> float:
        """A pilot's longest time limit, seconds."""
        return LONGEST_S[self.mode or "backfill"] if self.longest_s is None else self.longest_s


def make_site(table: dict[str, Any], where: str) -> SlurmSite:
    """Return the table `[slurm]`, checked. InputError names the field; `where` is the file."""
    try:
        return SlurmSite.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known = ", ".join(SlurmSite.model_fields)
            raise InputError(f"{where}: unknown key 'slurm.{field}'.", next_step=f"Known keys: {known}.") from None
        if first["type"] == "missing":
            raise InputError(
                f"{where}: slurm.{field} is missing.", next_step="For instance: --partition idle (sinfo lists them)."
            ) from None
        if first["type"] == "string_pattern_mismatch":
            raise InputError(
                f"{where}: slurm.{field}: {first['input']!r} is not a name that Slurm can have.",
                next_step="Letters, digits and _ . + - are allowed.",
            ) from None
        text = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise InputError(f"{where}: slurm.{field}: {text} (given: {first['input']!r}).") from None
