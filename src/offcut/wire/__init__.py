"""Messages between controller, agents and workers; tokens; the client side of the controller's API.

- `messages`: what agents and the controller tell each other, over a WebSocket
- `local`: what an agent, its launcher and its workers tell each other, over UNIX sockets on one node
- `rendezvous`: the protocol of the store through which members find each other
- `ownership`: whose a directory or file is
- `tokens`: secrets in files that only their owner can read
- `forkserver`: processes forked from one that has done its imports
- `jobspec`: a job as users write it
- `records`: which samples every step used, and reading that back
- `client`: the API as the command line uses it
"""
