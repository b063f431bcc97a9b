"""The state of a training, as a tree of tensors and plain values, and checkpoints of it.

- `training_state`: model, optimizers, registered objects and progress; `cursor`: the next sample
- `model_state`: the model's part of it, with or without frozen weights
- `buffers`: model buffers that are the same on every member; `trained_parameters`: what is trained and what is frozen
- `optimizer_shards`: the optimizers' state in shards, of which each member holds some
- `random_state`: the states of random generators
- `own_settings`: a trial that goes on from another trial's checkpoint keeps its own optimizer settings
- `lr_scaling`: scales the learning rate with the size
- `plain_values`, `state_codec`: what a state may contain, and how it is written and read back
- `generation_mark`: the newest generation of the job, in a file beside its checkpoints
- `checkpointer`: the Protocol of checkpointers; `fault_points`: points at which tests let a member fail
- `checkpoints`: when checkpoints are written, published and read, in all kinds of jobs; `checkpoint_layout`: which
  shares they have; `checkpoint_directory`: where they are; `dcp_shards`: one of them, in PyTorch's distributed format
"""
