"""What the server that local processes are forked from has loaded already."""

import torch.distributed
import torch.distributed.pipelining

torch.set_num_threads(1)
