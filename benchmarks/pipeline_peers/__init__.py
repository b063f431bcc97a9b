"""A pipeline plan in a plain torch.distributed group: on `torch.distributed.pipelining`, or on the engine of jobs."""
