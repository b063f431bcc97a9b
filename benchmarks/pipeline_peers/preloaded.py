"""Imported by the server that local processes are forked from, so that each starts with PyTorch loaded."""

import torch.distributed
import torch.distributed.pipelining

torch.set_num_threads(1)
