"""How tensors move between the members of one generation: a Protocol, and what implements it.

- `protocol`: the interface between a process group and what moves its tensors
- `gloo`: the transport for CPUs, which also carries votes, flags and states; `socket_timeouts`: how it notices that a
  member is gone
- `nccl`: the transport for NVIDIA GPUs; `choice`: which one sums gradients
- `abort`: ends the operations of a generation that is over, or this process
"""
