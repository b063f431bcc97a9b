"""The Unix account under which this process runs."""

from __future__ import annotations

import os
import pwd


def user_name() -> str:
    """Return the account's name, as the kernel knows it. LOGNAME and USER may say anything, after `su` for instance."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
