"""What the administrators of a site allow all controllers of all users together: a file that only root can write."""

from __future__ import annotations

import asyncio
import os
import stat
import tomllib
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated

import structlog
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StringConstraints, ValidationError

from offcut.cluster.slurm import limits
from offcut.errors import InputError

_log = structlog.get_logger()

#: Every controller of a machine obeys this file where it exists.
SYSTEM_FILE = Path("/etc/offcut/site.toml")
#: Names another file, for machines without that one: on a file system that login nodes share, for instance.
ENV_SITE_FILE = "OFFCUT_SITE_FILE"

_POLL_S = 2.0
_READ_LIMIT_S = 10.0
_MOST_BYTES = 1 << 20

Share = Annotated[float, Field(gt=0, le=1e6)]
UserName = Annotated[str, StringConstraints(min_length=1, max_length=120)]


class SiteRules(BaseModel):
    """The rules. Those of a machine without a file allow everything."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    claim: StrictBool = Field(
        True, description="`false`: every controller releases all its nodes at once, and claims none."
    )
    reason: str = Field("", max_length=200, description="Why; users read it in `offcut status`.")
    max_nodes: int | None = Field(None, ge=0, description="All controllers together never hold more.")
    max_nodes_per_user: int | None = Field(None, ge=0, description="All controllers of one user never hold more.")
    quiet: Annotated[tuple[str, ...], AfterValidator(limits.check_quiet)] = Field(
        (), description="When nothing is held: 'Mon-Fri 08:00-18:00', local time."
    )
    leave_idle_after_s: float | None = Field(
        None,
        ge=0,
        description="Seconds after the last job of the queue on a node from which on no pilot holds it: the site may "
        "power it down.",
    )
    shares: dict[UserName, Share] = Field(
        {}, description="Users' shares of what is idle, in proportion to each other. Users who are not named have 1."
    )

    def against_claims(self, now: datetime) -> str:
        """Return why no node may be held at this local time; empty if nodes may be held."""
        if not self.claim:
            return "the site's rules forbid claims" + (f" ({self.reason})" if self.reason else "")
        if any(limits.QuietHours.parse(text).hold(now) for text in self.quiet):
            return "quiet hours of the site's rules"
        return ""


def parse_rules(text: str, where: str) -> SiteRules:
    """Return the rules that a file's text says.

    Raises:
        InputError: The text is not TOML, or says what no rule can be; it names the file and the field.
    """
    try:
        return SiteRules.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where}: is not TOML: {error}.") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            known = ", ".join(SiteRules.model_fields)
            raise InputError(f"{where}: unknown key '{field}'.", next_step=f"Known keys: {known}.") from None
        said = first["msg"].removeprefix("Value error, ").rstrip(".")
        raise InputError(f"{where}: {field}: {said} (given: {first['input']!r}).") from None


class SiteRulesFile:
    """The rules that hold now. While the file cannot be used, those that were read last go on holding."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        """`paths`: where the file may be; the first that exists counts."""
        self._paths = paths
        self.rules = SiteRules()
        #: The file that the rules are from; None where there has been none.
        self.path: Path | None = None
        #: Why what the file says now is not obeyed; empty if it is.
        self.trouble = ""
        #: The stamp of the file that was read last, so that only a changed file is read again; and what is wrong with
        #: it.
        self._signature: tuple[object, ...] = ()
        self._wrong = ""

    @classmethod
    def locate(cls, environment: Mapping[str, str] = os.environ) -> SiteRulesFile:
        """Return the file of this machine, not read yet.

        The system's file goes before the one in the environment, which every user can change.
        """
        given = environment.get(ENV_SITE_FILE, "")
        return cls((SYSTEM_FILE, *((Path(given),) if given else ())))

    async def open(self) -> None:
        """Read the file for the first time.

        Raises:
            InputError: There is a file that cannot be used, or the environment names one that does not exist.
        """
        try:
            async with asyncio.timeout(_READ_LIMIT_S):
                await asyncio.to_thread(self.read)
        except TimeoutError:
            raise InputError(f"{self._paths[-1]} could not be read within {_READ_LIMIT_S:g} s.") from None
        missing = self.path is None and len(self._paths) > 1
        if self.trouble or missing:
            raise InputError(
                self.trouble or f"{ENV_SITE_FILE} names {self._paths[-1]}, which does not exist.",
                next_step="Ask your operators: the file says what the site allows every controller.",
            )

    async def watch(self, on_change: Callable[[], None]) -> None:
        """Read the file again whenever it changes; call `on_change` when the rules have changed. Runs until cancelled.

        A file system that hangs holds up nothing else.
        """
        while True:
            await asyncio.sleep(_POLL_S)
            before, trouble = self.rules, self.trouble
            await asyncio.to_thread(self.read)
            if self.trouble and self.trouble != trouble:
                _log.warning("site_rules_not_readable", reason=self.trouble, but="the last rules hold")
            if self.rules != before:
                _log.info("site_rules_changed", file=str(self.path), rules=self.rules.model_dump(exclude_defaults=True))
                on_change()

    def read(self) -> None:
        """Read the file if it has changed. Whatever is wrong with it becomes `trouble`."""
        try:
            self._read()
            self.trouble = self._wrong
        except OSError as error:
            self.trouble = f"{error.filename or self.path} cannot be read: {error.strerror or error}"

    def _read(self) -> None:
        opened = _open_first(self._paths)
        if opened is None:
            if self.path is not None:
                self._signature = ()
                self._wrong = f"{self.path} is gone; what it said last holds until it is there again"
            return
        path, descriptor = opened
        try:
            found = os.fstat(descriptor)
            signature = (path, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
            if signature == self._signature:
                return
            wrong = _wrong_owner(path, found)
            text = "" if wrong else os.read(descriptor, _MOST_BYTES).decode(errors="replace")
        finally:
            os.close(descriptor)
        self._signature, self.path, self._wrong = signature, path, wrong
        if wrong:
            return
        try:
            self.rules = parse_rules(text, str(path))
        except InputError as error:
            self._wrong = str(error)
            if _switches_off(text):
                # The kill switch works whatever else is wrong.
                self.rules = self.rules.model_copy(update={"claim": False})


def _switches_off(text: str) -> bool:
    try:
        return tomllib.loads(text).get("claim") is False
    except tomllib.TOMLDecodeError:
        return False


def _open_first(paths: tuple[Path, ...]) -> tuple[Path, int] | None:
    for path in paths:
        try:
            # Another user's FIFO in its place must not hang us.
            return path, os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            continue
    return None


def _wrong_owner(path: Path, found: os.stat_result) -> str:
    """Return why the file is not obeyed; empty if only root can write it."""
    if not stat.S_ISREG(found.st_mode):
        return f"{path} is not a file"
    if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"{path} can be written by others than root, so it is not obeyed"
    return ""
