"""A job as users write it: in a TOML file, as options of `offcut submit`, as the body of an API request."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from offcut.errors import InputError
from offcut.model import Job, ScalingCurve, Sizes
from offcut.model.sizes import LARGEST
from offcut.wire.fields import PlainText, fault
from offcut.wire.worker_env import ENV_PLANS

#: Programs that start a script's ranks, as mode `restart` does.
_LAUNCHERS = ("torchrun", "accelerate", "mpirun", "srun")


#: A directory has its job's id, which is the name and a number, and may be 255 bytes long.
_NAME_BYTES = 200

#: Limits within which all realistic values lie, and within which no sum of the solver overflows.
WEIGHT_RANGE = (1e-6, 1e6)
_RATE_RANGE = (1e-6, 1e12)
_MOST_COST_S = 1e6
_MOST_POINTS = 10_000

Weight = Annotated[float, Field(ge=WEIGHT_RANGE[0], le=WEIGHT_RANGE[1], allow_inf_nan=False)]
_CostS = Annotated[float, Field(ge=0, le=_MOST_COST_S)]


class CurveSpec(BaseModel):
    """Throughput in samples/s (or any unit) at node counts, for a job whose scaling is known."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    nodes: list[Annotated[int, Field(le=LARGEST)]] = Field(max_length=_MOST_POINTS)
    rate: list[float] = Field(max_length=_MOST_POINTS)

    @field_validator("rate")
    @classmethod
    def _rates_are_sensible(cls, rates: list[float]) -> list[float]:
        low, high = _RATE_RANGE
        for rate in rates:
            if rate != 0 and not low <= rate <= high:
                raise ValueError(f"a rate must be 0, or from {low:g} to {high:g}: {rate:g} is not")
        return rates


class JobSpec(BaseModel):
    """A malleable training job."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: str = Field(min_length=1, max_length=80, pattern=r"^\w[\w.+-]*$", description="The job's name.")
    command: list[PlainText] = Field(
        min_length=1,
        max_length=10_000,
        description="The training script and its arguments; a script that ends in .py runs under Python.",
    )
    sizes: str = Field("1:8", description="The node counts it may have: '4', '1:8', '2:8:2' or '1,2,4'.")
    ranks_per_node: int = Field(1, ge=1, le=64, description="Training processes on each node: one per accelerator.")
    workdir: PlainText = Field(".", description="The directory in which it runs; relative to the job file.")
    env: dict[PlainText, PlainText] = Field({}, description="Variables added to the environment of its processes.")
    env_file: PlainText | None = Field(
        None,
        description="A file of NAME=VALUE lines, added to the environment: for secrets, which arguments would show.",
    )
    setup: PlainText = Field("", description="Shell lines run first: modules, a container, an activation script.")
    weight: Weight = Field(1.0, description="The weight of its throughput against other jobs'.")
    priority: int = Field(0, ge=-1_000_000, le=1_000_000, description="Jobs of a higher priority are served first.")
    curve: CurveSpec | None = Field(None, description="Its scaling curve, if it is known; otherwise it is learned.")
    plans: PlainText | None = Field(
        None,
        description="The plans of a pipeline job (offcut plan --save). Sizes and curve are theirs unless given.",
    )
    family: PlainText | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="Jobs of one family (the trials of a sweep) share what is learned of their scaling.",
    )
    mode: Literal["session", "restart"] = Field(
        "session", description="'session': the script uses offcut.torch. 'restart': a resize ends and relaunches it."
    )
    goal_samples: int | None = Field(
        None, ge=1, le=10**15, description="Stop after this many samples; else at the script's end."
    )
    max_failures: int = Field(
        3, ge=0, le=1_000_000, description="Failures in a row, without progress between, that are forgiven."
    )
    grow_cost_s: _CostS | None = Field(None, description="Seconds of progress that growing costs.")
    shrink_cost_s: _CostS | None = Field(None, description="Seconds of progress that shrinking costs.")
    checkpoint_age_s: float = Field(
        30.0, gt=0, le=1e9, description="At most this much work is redone after a total loss."
    )
    hang_limit_s: float = Field(
        1800.0,
        gt=0,
        le=1e9,
        description="A script that does not return to its session for this long is ended as hung.",
    )
    finish_limit_s: float | None = Field(
        None,
        gt=0,
        le=1e9,
        description="A script that runs for longer after its last step is ended, and the job has failed; default: "
        "`hang_limit_s`.",
    )
    restart_grace_s: float = Field(
        10.0, ge=0, le=1e9, description="Mode restart: seconds from SIGTERM to SIGKILL when it is to be launched again."
    )
    step_records: bool = Field(False, description="Record which samples every step used.")

    @field_validator("name")
    @classmethod
    def _name_is_short(cls, name: str) -> str:
        size = len(name.encode())
        if size > _NAME_BYTES:
            raise ValueError(f"it is {size} bytes long; at most {_NAME_BYTES}, because a directory has the name too")
        return name

    @field_validator("env")
    @classmethod
    def _variables_have_names(cls, env: dict[str, str]) -> dict[str, str]:
        for variable in env:
            if not variable or "=" in variable:
                raise ValueError(f"'{variable}' is not the name of an environment variable")
        return env

    @field_validator("sizes")
    @classmethod
    def _sizes_can_be_read(cls, text: str) -> str:
        try:
            Sizes.parse(text)
        except InputError as error:
            raise ValueError(str(error)) from None
        return text

    @model_validator(mode="after")
    def _curve_covers_sizes(self) -> JobSpec:
        if self.curve is not None:
            try:
                curve = ScalingCurve(tuple(self.curve.nodes), tuple(self.curve.rate))
            except InputError as error:
                raise ValueError(str(error)) from None
            largest = Sizes.parse(self.sizes).largest
            if largest > curve.max_nodes:
                raise ValueError(f"sizes: {largest} nodes lie outside the curve, which ends at {curve.max_nodes}.")
            if max(curve.rate) == 0:
                raise ValueError("curve: every rate is 0.")
        return self

    @model_validator(mode="after")
    def _restart_asks_for_nothing_that_only_a_session_does(self) -> JobSpec:
        if self.mode == "restart":
            if Path(self.command[0]).name in _LAUNCHERS:
                raise ValueError(
                    f"command: offcut starts the ranks itself: give the script alone, without {self.command[0]}."
                )
            for field in ("goal_samples", "step_records"):
                if getattr(self, field):
                    raise ValueError(f"{field}: only a script with a session can do that, not one of mode 'restart'.")
        return self

    def to_job(self, job_id: str) -> Job:
        curve = ScalingCurve(tuple(self.curve.nodes), tuple(self.curve.rate)) if self.curve else None
        same = self.model_dump(exclude={"command", "sizes", "env", "env_file", "curve", "plans"})
        env = self.env if self.plans is None else {**self.env, ENV_PLANS: self.plans}
        return Job(
            id=job_id,
            command=tuple(self.command),
            sizes=Sizes.parse(self.sizes),
            env=tuple(sorted(env.items())),
            curve=curve,
            **same,
        )


def read_job_file(path: Path) -> JobSpec:
    """Read a job from a TOML file; its `workdir`, script, `plans` and `env_file` are relative to the file.

    Raises InputError.
    """
    try:
        data = tomllib.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.", next_step="Check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}.", next_step="See the job file reference.") from None
    spec = parse_job(data, where=str(path))
    return check_files(with_absolute_paths(spec, path.parent), where=str(path))


def with_absolute_paths(spec: JobSpec, directory: Path) -> JobSpec:
    """Return the job with its `workdir`, `plans` and `env_file`, which are relative to `directory`, made absolute."""
    places = {"workdir": str((directory / spec.workdir).resolve())}
    for field, place in (("plans", spec.plans), ("env_file", spec.env_file)):
        if place is not None:
            places[field] = str((directory / place).resolve())
    return spec.model_copy(update=places)


def parse_job(data: dict[str, Any], *, where: str) -> JobSpec:
    """Read a job from plain data. InputError names `where` and the field."""
    try:
        return JobSpec.model_validate(data)
    except ValidationError as error:
        raise InputError(
            f"{where}: {fault(error.errors(include_url=False))}", next_step="See: offcut submit --help"
        ) from None


def with_env_file(spec: JobSpec) -> JobSpec:
    """Return the job with the variables of its `env_file` in its environment; `env` has precedence.

    Raises InputError.
    """
    if spec.env_file is None:
        return spec
    env = {**read_env_file(Path(spec.env_file)), **spec.env}
    return parse_job(spec.model_dump(exclude_unset=True, exclude={"env_file"}) | {"env": env}, where=spec.env_file)


def read_env_file(path: Path) -> dict[str, str]:
    """Read a file of NAME=VALUE lines, each value literally; empty lines and those with # are ignored.

    Raises InputError.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.", next_step="Check the path.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text.") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        variable, equals, value = line.partition("=")
        if not equals or not variable.strip():
            # Not shown: it may be a secret.
            raise InputError(f"{path}: line {number} is not NAME=VALUE.", next_step="Write one variable to a line.")
        found[variable.strip()] = value
    return found


def check_files(spec: JobSpec, *, where: str) -> JobSpec:
    """Raise InputError unless the working directory exists and, for a Python job, the script in it."""
    workdir = Path(spec.workdir)
    if not workdir.is_dir():
        raise InputError(
            f"{where}: workdir: {workdir} is not a directory.", next_step="Create it, or correct the path."
        )
    script = spec.command[0]
    if script.endswith(".py") and not (workdir / script).is_file():
        raise InputError(f"{where}: command: there is no script {workdir / script}.", next_step="Check the path.")
    return spec
