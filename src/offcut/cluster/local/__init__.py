"""Virtual nodes on this machine, run by a small batch system that is a process of its own, as a real one is.

- `schedule`: the windows of nodes, in seconds of this machine's clock
- `daemon`: the batch system: offers, wants and takes nodes, and starts agents on claimed ones
- `adapter`: the Cluster that talks to it
- `site`: starting the daemon, or finding the one that an earlier controller left running
"""
