"""`offcut demo`: real training on virtual nodes that come and go, watched live, and checked afterwards.

- `plan`: the jobs and the windows
- `stage`: the controller that the demo runs, as a process of its own
- `view`: what is seen meanwhile
- `check`: whether every promise was kept
- `command`: the command itself
"""

from offcut.cli.demo.command import demo

__all__ = ["demo"]
