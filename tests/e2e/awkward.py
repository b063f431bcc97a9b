"""Scripts that do not behave: `awkward.py early|hang|import`."""

import sys
import time

if sys.argv[1] == "import":
    import there_is_no_such_module  # noqa: F401
if sys.argv[1] == "hang":
    time.sleep(10_000)
