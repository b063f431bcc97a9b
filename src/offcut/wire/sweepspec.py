"""A sweep as users write it: in a TOML file, or as the body of an API request."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from offcut.errors import InputError
from offcut.model.search_space import (
    CategoricalParameter,
    Condition,
    FloatParameter,
    IntParameter,
    Parameter,
    ParameterValue,
    SearchSpace,
)
from offcut.model.sweep import Direction, ResultOrder, SchedulerChoice, Suggester, Sweep
from offcut.wire.fields import PlainText, fault
from offcut.wire.jobspec import JobSpec, check_files, with_absolute_paths, with_env_file

_Value = bool | Annotated[int, Field(ge=-(2**53), le=2**53)] | float | PlainText
#: Parameters are arguments of the script (`--name=value`), so their names are those of options.
_ParameterName = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.-]*$", max_length=100)]


class ParameterSpec(BaseModel):
    """One parameter of the search space."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    type: Literal["float", "int", "categorical"] | None = Field(
        None, description="'float' or 'int' with low and high; not needed with choices."
    )
    low: float | None = Field(None, description="The smallest value.")
    high: float | None = Field(None, description="The largest value.")
    log: bool = Field(False, description="Uniform in the logarithm.")
    step: int = Field(1, description="Of an int: the distance of two values.")
    choices: list[_Value] | None = Field(None, max_length=10_000, description="The values of a categorical parameter.")
    when: dict[str, _Value | list[_Value]] | None = Field(
        None, description="The parameter exists only if an earlier one has this value, or one of these."
    )

    def to_parameter(self, name: str) -> Parameter:
        """Return the parameter. InputError if it is not possible."""
        when = self._condition(name)
        if self.choices is not None:
            if self.type not in (None, "categorical") or self.low is not None or self.high is not None:
                raise InputError(f"{name}: it has choices and a range.", next_step="Leave one of them out.")
            return CategoricalParameter(name=name, choices=tuple(self.choices), when=when)
        if self.low is None or self.high is None or self.type not in ("float", "int"):
            raise InputError(
                f"{name}: it needs choices, or a type ('float' or 'int') with low and high.",
                next_step="Write for example {type = 'float', low = 0.001, high = 0.1, log = true}.",
            )
        if self.type == "float":
            if self.step != 1:
                raise InputError(f"{name}: step is for int parameters.", next_step="Leave it out, or list choices.")
            return FloatParameter(name=name, low=self.low, high=self.high, log=self.log, when=when)
        if not (self.low.is_integer() and self.high.is_integer()):
            raise InputError(f"{name}: low and high of an int parameter must be integers.")
        return IntParameter(name=name, low=int(self.low), high=int(self.high), log=self.log, step=self.step, when=when)

    def _condition(self, name: str) -> Condition | None:
        if self.when is None:
            return None
        if len(self.when) != 1:
            raise InputError(f"{name}: when: it must name one parameter.", next_step="Write {other = 'value'}.")
        ((other, values),) = self.when.items()
        return Condition(other, tuple(values) if isinstance(values, list) else (values,))


class SweepSpec(BaseModel):
    """A search over the parameters of a training job."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: str = Field(min_length=1, max_length=60, pattern=r"^\w[\w+-]*$", description="The sweep's name.")
    job: JobSpec = Field(description="What every trial runs: the fields of a job file.")
    space: dict[_ParameterName, ParameterSpec] = Field(
        min_length=1, max_length=1000, description="The parameters, each after the one that it depends on."
    )
    scheduler: dict[str, _Value] = Field(description="The trial scheduler's name, and its options.")
    direction: Direction = Field("minimize", description="'minimize' or 'maximize' the objective.")
    suggest: Suggester = Field("random", description="Who chooses parameters: 'random', 'grid' or 'optuna'.")
    sampler: Literal["tpe", "random", "cmaes", "gp", "qmc"] = Field("tpe", description="Optuna's sampler.")
    seed: int = Field(0, ge=0, le=2**31, description="The seed of everything that is drawn at random.")
    max_trials: int = Field(100, ge=1, le=100_000, description="At most this many trials.")
    total_budget: float | None = Field(
        None, gt=0, description="No trial starts or is promoted once all together have used this much budget."
    )
    max_node_hours: float | None = Field(
        None, gt=0, description="No trial starts or is promoted once all together have used this many node-hours."
    )
    order: ResultOrder = Field("arrival", description="'logical': decisions do not depend on when nodes come and go.")
    parallel: int = Field(8, ge=1, le=10_000, description="At most this many trials at once.")
    arguments: bool = Field(True, description="Give the parameters as arguments: --name=value.")

    @model_validator(mode="before")
    @classmethod
    def _job_has_the_name_of_the_sweep(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("job"), dict):
            return {**data, "job": {"name": data.get("name", "sweep"), **data["job"]}}
        return data

    @field_validator("scheduler")
    @classmethod
    def _scheduler_has_a_name(cls, scheduler: dict[str, ParameterValue]) -> dict[str, ParameterValue]:
        if not isinstance(scheduler.get("name"), str):
            raise ValueError("it has no name: write for example name = 'asha'")
        return scheduler

    @model_validator(mode="after")
    def _sweep_is_possible(self) -> SweepSpec:
        try:
            self.to_sweep("check")
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    def to_sweep(self, sweep_id: str, job: JobSpec | None = None) -> Sweep:
        """Return the sweep.

        Args:
            sweep_id: its id.
            job: what every trial runs, if more is known of it than `self.job` says.
        """
        options = dict(self.scheduler)
        name = str(options.pop("name"))
        return Sweep(
            id=sweep_id,
            name=self.name,
            job=(job or self.job).to_job(sweep_id),
            space=SearchSpace(tuple(each.to_parameter(name) for name, each in self.space.items())),
            scheduler=SchedulerChoice(name, tuple(options.items())),
            direction=self.direction,
            suggester=self.suggest,
            sampler=self.sampler,
            seed=self.seed,
            max_trials=self.max_trials,
            total_budget=self.total_budget,
            max_node_hours=self.max_node_hours,
            order=self.order,
            parallel=self.parallel,
            arguments=self.arguments,
        )


def read_sweep_file(path: Path) -> SweepSpec:
    """Read a sweep from a TOML file; paths in it are relative to the file. Raises InputError."""
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.", next_step="Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}.", next_step="See the page on sweeps.") from None
    return with_checked_files(
        parse_sweep({"name": path.stem, **data}, where=str(path)), path.parent, where=f"{path}: job"
    )


def with_checked_files(spec: SweepSpec, directory: Path, *, where: str) -> SweepSpec:
    """Return the sweep with the paths of its job, which are relative to `directory`, made absolute.

    Raises:
        InputError: a file of its job is not there. The message begins with `where`.
    """
    job = with_env_file(check_files(with_absolute_paths(spec.job, directory), where=where))
    return spec.model_copy(update={"job": job, "scheduler": _with_absolute_path(spec.scheduler, directory)})


def _with_absolute_path(scheduler: dict[str, ParameterValue], directory: Path) -> dict[str, ParameterValue]:
    """Return a scheduler with the path of its file, which is relative to `directory`, made absolute."""
    file, colon, name = str(scheduler["name"]).partition(":")
    return {**scheduler, "name": f"{(directory / file).resolve()}{colon}{name}"} if file.endswith(".py") else scheduler


def parse_sweep(data: dict[str, Any], *, where: str) -> SweepSpec:
    """Read a sweep from plain data. InputError names `where` and the field."""
    try:
        return SweepSpec.model_validate(data)
    except ValidationError as error:
        raise InputError(
            f"{where}: {fault(error.errors(include_url=False))}", next_step="See the page on sweeps."
        ) from None
