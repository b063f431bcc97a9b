"""The format of messages between processes of one account on one machine: one JSON object per line."""

from __future__ import annotations

import json
from typing import Any


def encode_line(message: dict[str, Any]) -> bytes:
    """Return the message as one line of JSON, with its newline."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
