"""`offcut page`: where a browser finds the page of the running controller, also from another machine."""

from __future__ import annotations

import getpass
import html
import json as jsons
import os
import socket
import sys
import time
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from offcut.cli.options import JsonOption, StateOption
from offcut.cli.output import line, print_json
from offcut.errors import UnreachableError


def page(
    state: StateOption = None,
    rotate: Annotated[
        bool,
        typer.Option("--rotate", help="Make a new key: earlier tokens, and browsers, are shut out."),
    ] = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser where there is one.")] = True,
    json: JsonOption = False,
) -> None:
    """Print the address of the page of the running controller, and the ssh command that brings it to your machine.

    The address has a secret in it: with it, anybody can read the page until the token expires.

    Examples: `offcut page`, `offcut page --rotate`
    """
    from offcut.service.page import token_file
    from offcut.service.paths import StatePaths, default_state_dir

    paths = StatePaths((state or default_state_dir()).absolute())
    place = _running(paths.page_address)
    now_s = time.time()
    if rotate:
        from offcut.service.audit import AuditLog, of_command

        token_file.rotate(paths.page_key)
        AuditLog(paths.audit, paths.older_audit).write(of_command("offcut page --rotate"))
    token = token_file.current_token(paths.page_key, paths.page_token, now_s)
    expires_s = token_file.expiry(token)
    url = f"{place['url']}?token={token}"
    tunnel = ssh_command(place["url"], place["port"])
    if json:
        print_json({"url": url, "ssh": tunnel, "expires_s": expires_s})
        return
    line(url)
    if tunnel is not None:
        line("From another machine, run this there, and open the same address:")
        line(tunnel, indent="  ")
    line(f"The token expires on {time.strftime('%Y-%m-%d %H:%M', time.localtime(expires_s))}.")
    if browser and sys.stdout.isatty() and _has_browser():
        webbrowser.open(write_opener(paths.page_opener, url).as_uri())


def _running(address: Path) -> dict[str, Any]:
    """Return where the page is served. UnreachableError: nowhere."""
    try:
        place = jsons.loads(address.read_text())
        with socket.create_connection((_host(place["url"]), place["port"]), timeout=5.0):
            return dict(place)
    except (OSError, ValueError, KeyError, TypeError):
        raise UnreachableError(
            "No page is served.", next_step="Start a controller (offcut up), without --page off."
        ) from None


def _host(url: str) -> str:
    from urllib.parse import urlsplit

    return urlsplit(url).hostname or ""


def ssh_command(url: str, port: int) -> str | None:
    """Return the command that brings a page on loopback to another machine; None: it can be reached as it is."""
    if _host(url) not in ("127.0.0.1", "localhost", "::1"):
        return None
    return f"ssh -N -L {port}:127.0.0.1:{port} {getpass.getuser()}@{socket.getfqdn()}"


def _has_browser() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER"))


def write_opener(path: Path, url: str) -> Path:
    """Write a file that leads a browser to `url`, which must not be in the browser's arguments. Raises StoreError."""
    from offcut.wire import tokens

    tokens.write(
        path,
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={html.escape(url)}">'
        f'<a href="{html.escape(url)}">To the page of offcut</a>',
    )
    return path
