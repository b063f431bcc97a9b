"""`torchrun`, which says that it is ready once everything is imported."""

from __future__ import annotations

import sys
from pathlib import Path

from torch.distributed import run

sys.path.insert(0, str(Path(__file__).parents[1]))
from resize_peers import training

training.Notes().ready()
run.main(sys.argv[1:])
