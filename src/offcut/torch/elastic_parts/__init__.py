"""Elastic training in a script's own loop: the script keeps its DataLoader, its backward pass and its optimizer.

- `functions`: what a script calls; `current_training`: the one elastic training of a process
- `elastic_training`: ties model, optimizer and loader to this member
- `script_loops`: the script's loops over epochs, steps and batches; `phases`: several of them one after the other
- `elastic_loader`: the loader in the place of the script's DataLoader; `batch_source`: what it gets its batches from
- `indexed_batches`: the batches of a dataset that can be indexed: `data_order` draws them as the script's sampler does,
  `batch_division` divides them among the members; `drawn_batches`: batches that a function of the script draws
- `sharded_stream`: streams that can be shared out; `stream_batches`: the batches of one; `shard_reader`: reads shards
- `loop_random`: random numbers around the loops; `rows`: rows of a batch
- `loader_step`: the step of such a loop; `gradient_watch`: finds gradients that are changed before they are reduced
- `virtual_shards`: parts of a batch that do not depend on the size; `shard_gradients`: weights their gradients
- `member_exchange`: exchanges among the members in a step; `all_gather`: with gradients; `sync_batch_norm`: BatchNorm
  over the global batch
- `logged_metrics`: what a script logs, one record for each step
- `row_state`: state of each row of the global batch
- `evaluation`: an evaluation that the members share out; `script_errors`: what a script must not do
"""
