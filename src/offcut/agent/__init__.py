"""What runs on a claimed node: starts and ends workers, obeys the queue, dials out to the controller.

- `agent`: the process: membership messages in, reports out, and giving the node back in time
- `crew`: one job's workers on this node, from start to exit
- `restart`: the same for a script that knows nothing of offcut
- `devices`: which of the node's accelerators each rank sees
- `launch`: how a worker's process comes to be, and how it surely ends
- `leftovers`: processes that got away from their rank
- `controller`: the line to the controller, which may be cut and come back
"""
