"""Layer profiles in files."""

from __future__ import annotations

import json
from pathlib import Path

from offcut.errors import InputError
from offcut.pipeline.layer_profile import LayerProfile, from_json
from offcut.pipeline.pipedream_graph import parse_graph


def read_profile(path: Path, *, micro_batch: int | None = None) -> LayerProfile:
    """Read a layer profile from a file: offcut's own (JSON) or PipeDream's (a graph file).

    The first character tells the two apart.

    Args:
        path: the file.
        micro_batch: the batch size (samples) at which a PipeDream graph was measured, which its file does not say;
            None: that of the published profile.

    Returns:
        The layer profile.

    Raises:
        InputError: the file cannot be read or is not a profile; it names the field or the line.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}).", next_step="Check the path.") from None
    if text.lstrip().startswith("{"):
        try:
            document = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}).", next_step="Fix it.") from None
        return from_json(document, source=str(path))
    return parse_graph(text, source=str(path), model=path.stem, micro_batch=micro_batch)
