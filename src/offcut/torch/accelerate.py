"""accelerate's Accelerator for jobs whose nodes come and go: `from offcut.torch.accelerate import Accelerator`.

Import it in place of accelerate's own, and write `for epoch in accelerator.epochs(count):` in place of
`for epoch in range(count):`. Outside of a job both are as before.
"""

from __future__ import annotations

from offcut.torch.integrations.elastic_accelerator import Accelerator
from offcut.torch.integrations.world_of_one import hide_launcher

__all__ = ["Accelerator"]

hide_launcher()
