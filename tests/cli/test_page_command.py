"""`offcut page` prints where the page is and what opens it; `--rotate` is in the audit log."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from offcut.service.paths import StatePaths


def test_the_address_has_a_token_and_a_new_key_shuts_out_the_one_before(offcut: Callable, tmp_path: Path) -> None:
    paths = StatePaths(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as served:
        port = served.getsockname()[1]
        paths.page_address.write_text(json.dumps({"url": f"http://127.0.0.1:{port}/", "port": port}))

        def token(*options: str) -> str:
            code, out, error = offcut("page", "--json", "--no-browser", "--state", str(tmp_path), *options)
            assert (code, error) == (0, "")
            return parse_qs(urlsplit(json.loads(out)["url"]).query)["token"][0]

        first = token()
        assert token() == first == paths.page_token.read_text().strip()
        assert not paths.audit.exists()
        assert token("--rotate") != first
    for secret in (paths.page_token, paths.page_key, paths.audit):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    code, out, _ = offcut("audit", "--json", "--state", str(tmp_path))
    (entry,) = json.loads(out)
    assert (code, entry["role"], entry["path"], entry["uid"]) == (0, "command", "offcut page --rotate", os.geteuid())
    assert first not in out

    code, out, _ = offcut("page", "--json", "--state", str(tmp_path))
    assert (code, json.loads(out)["error"]) == (2, "No page is served.")
