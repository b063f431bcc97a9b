"""One training step of a data-parallel job: its samples, their gradients, the reduce, the update.

- `batch_policy`, `sampler`: the size of the global batch, its samples, and which member works on which;
  `keyed_permutation`: a random order that takes no memory
- `usage_checks`: finds what scripts do that cannot be trained with
- `batch`, `loader`: fetching the samples; `share_loader`: loads the shares of one member by a DataLoader
- `gradient_reduce`: the sum of all members' gradients and of the signals that are sent with them; `member_gradients`:
  which parameters are trained, and when their gradients are summed
- `gradient_buckets`: gradients in one buffer, or in several; `backward_overlap`: sums these during the backward pass
- `protocol`: the interface between the training loop and a step; `data_parallel`: the step of a data-parallel job
- `sharded_update`: its update where each member holds a part of the optimizers' state
"""
