"""The running controller: events in, effects out.

- `paths`: what lies where in the state directory, and the lock on it
- `clusters`: which cluster it works with
- `controller`: journal, step, effects: the loop
- `agents`: connections of agents, and noticing when one is gone
- `solver`: allocation problems answered in a process of their own
- `rendezvous`: the store through which members find each other, kept alive or adopted;
  `rendezvous_server`, `rendezvous_keys`: the store itself, a program of its own
- `metrics`: resize latencies, throughput, node-seconds
- `views`: what people and programs are shown
- `app`: the HTTP and WebSocket API
- `run`: all of it together, until it is told to stop
"""
