"""`offcut` whose wall clock is ahead by as many seconds as the file $OFFCUT_TEST_CLOCK says: it can be set at any time.

python shifted_up.py [options of `offcut up`]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

_clock = Path(os.environ["OFFCUT_TEST_CLOCK"])
_time = time.time
time.time = lambda: _time() + float(_clock.read_text() or 0)

from offcut.cli import main  # noqa: E402

sys.argv[1:] = ["up", *sys.argv[1:]]
main()
