"""What a member of a job decides, as pure functions: no torch, no input or output, no clock.

- `generation`: the numbered membership of a job, as its members see it
- `entering`: what a worker does when it hears of a new generation; when it is fenced
- `address_choice`: the address at which others connect to a member, of those at which they have reached it
- `boundary`: what a member does between two steps: switch generations, begin a checkpoint, go on
- `state_givers`: which members' state the others take over when a generation forms
- `state_shards`: which members hold which shards of the optimizers' state, and what a resize moves
- `leaving`: who saves the state when workers leave, and who may leave without saving
"""
