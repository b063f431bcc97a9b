"""One JSON object per line: how processes of one account on one machine talk to each other."""

from __future__ import annotations

import json
from typing import Any


def encode_line(message: dict[str, Any]) -> bytes:
    """Return the message as one line of JSON, with its newline."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
