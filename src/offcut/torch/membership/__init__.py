"""The members of a job, and how a worker that joins gets the state.

- `job_context`: what the environment says about the job; `agent_link`: the connection to the agent
- `process_group`: the process group of one generation
- `rendezvous_store`, `reachable_address`: how members find each other, and over which network
- `member`: entering a generation, switching to the next one, leaving in time; `process_exit`: the end of the process
- `leaving_ranks`: which members leave with the end of a generation
- `boundary_lock`: keeps a state from being saved between two boundaries
- `solo_member`: the member of a script that runs without offcut
- `state_sync`: brings members to the state that they need; `script_check`: checks that their scripts are the same
- `sharded_sync`: does that where each member holds a part of the optimizers' state
- `state_transfer`: moves a state between members; `state_checksum`, `differences`: compare the members' states
- `step_timing`: measures steps and predicts the next boundary
"""
