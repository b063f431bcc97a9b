"""The account's name comes from the kernel."""

from __future__ import annotations

import os
import pwd

import pytest

from offcut.cluster.slurm.account import user_name


def test_the_environment_does_not_name_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert user_name() == pwd.getpwuid(os.geteuid()).pw_name
