"""One training step of a data-parallel job: which samples, their gradients, the reduce, the update.

- `batch_policy`, `sampler`: how large the global batch is, which samples it has, and which member works on which
- `batch`, `loader`: fetching the samples
- `gradient_reduce`: the sum of all members' gradients and of the signals that are sent with them
- `protocol`: what the training loop asks of a step; `data_parallel`: the step of a data-parallel job
"""
