"""Scripts that do not behave: `awkward.py early|hang|import|stuck`."""

import sys
import time

if sys.argv[1] == "import":
    import there_is_no_such_module  # noqa: F401
if sys.argv[1] == "hang":
    time.sleep(10_000)
if sys.argv[1] == "stuck":
    import torch
    from torch.utils.data import TensorDataset

    from offcut.torch import Session

    model = torch.nn.Linear(2, 1)
    data = TensorDataset(torch.randn(64, 2), torch.randn(64, 1))
    with Session(model, torch.optim.SGD(model.parameters(), lr=0.1), data, global_batch=8) as session:
        for epoch in session.epochs(10):
            for batch in epoch:
                if session.steps == 5 and session.rank == session.world - 1:
                    time.sleep(10_000)
                session.step((session.model(batch.x) - batch.y).square().mean())
