"""Who is a member of the job, and how the state gets to a worker that joins.

- `job_context`: what a worker knows of its job; `agent_link`: the connection to the agent
- `process_group`: the process group of one generation
- `rendezvous_store`, `socket_timeouts`: how members find each other, and how they notice that one is gone
- `member`: entering a generation, switching to the next one, leaving in time; `process_exit`: the end of the process
- `solo_member`: the same for a script that runs without offcut
- `state_sync`: how members come to have the state that they need; `script_check`: whether their scripts are the same
- `state_transfer`: moving a state between members; `state_checksum`, `differences`: are the states the same?
- `step_timing`: how long a step takes, and when the next boundary may come
"""
