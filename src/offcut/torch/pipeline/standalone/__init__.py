"""One plan in a torch.distributed group outside a job, for comparison: `plan_runner`, and local processes for it."""
