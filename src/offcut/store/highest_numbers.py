"""The highest numbers that were given out, noted beside the journal in case it is replaced by an older copy."""

from __future__ import annotations

import json
from pathlib import Path

import structlog
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from offcut.control import State
from offcut.control.state import ENDED

_log = structlog.get_logger()


class Given(BaseModel):
    """The last incarnation, the last generation of each job, and the event that gave the last of them."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)
    event: int = Field(0, ge=0)
    incarnation: int = Field(0, ge=0)
    #: Versions before 0.3 wrote it as `epochs`.
    generations: dict[str, int] = Field({}, validation_alias=AliasChoices("generations", "epochs"))


class GivenNumbers:
    """The file `path`. It is not synced: it helps when a journal was restored or removed, not after a crash."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Given:
        """Return what was noted last; zeros if there is no file, or one that cannot be read."""
        try:
            return Given.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return Given()
        except (OSError, ValidationError) as error:
            _log.warning("numbers_not_read", path=str(self._path), error=str(error).splitlines()[0])
            return Given()

    def note(self, state: State) -> None:
        """Write down what `state` has given out."""
        generations = {
            job_id: job.generation for job_id, job in state.jobs.items() if job.generation and job.phase not in ENDED
        }
        given = Given(event=state.event_id, incarnation=state.incarnations, generations=generations)
        whole = self._path.with_suffix(".new")
        try:
            whole.write_text(json.dumps(given.model_dump()))
            whole.replace(self._path)
        except OSError as error:
            _log.warning("numbers_not_noted", path=str(self._path), error=str(error))
