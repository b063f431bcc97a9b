"""Messages between controller, agents and workers; tokens; the client side of the controller's API.

- `messages`: what agents and the controller tell each other, over a WebSocket
- `worker_messages`: what an agent and its workers tell each other, over UNIX sockets on one node
- `generation_changes`: a large generation as its changes since the last one
- `worker_env`: the environment variables that tell agents and workers who and where they are
- `rendezvous`: the protocol of the store through which members find each other
- `ownership`: whose a directory or file is
- `tokens`: secrets in files that only their owner can read; `credentials`: what an agent shows to the controller
- `tls`: the two ends of a TLS connection; `certificate`: makes and reads the controller's certificate
- `fields`: kinds of text from outside, and what they may hold
- `jobspec`: a job as users write it; `sweepspec`: a sweep
- `step_records`: which samples every step used, and reading that back
- `metric_records`: what scripts log in each step
- `client`: the API as the command line uses it
"""
