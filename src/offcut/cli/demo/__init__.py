"""`offcut demo`: real training on nodes that come and go, shown live and checked afterwards.

- `scenario`: the jobs and the windows
- `main_queue`: a private Slurm whose main queue takes the nodes back
- `demo_controller`: the controller of the demo, a process of its own
- `screen`: the live view
- `promises`: checks whether every promise was kept
- `command`: the command itself
"""

from offcut.cli.demo.command import demo

__all__ = ["demo"]
