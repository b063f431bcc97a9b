"""The campaign of faults: whole systems under a simulated clock and network, in one thread, from one seed.

The controller's service, its journal, the daemon of virtual nodes and the agents are the real ones. They run in an
asyncio event loop whose clock is simulated. Simulated are the processes, the network, the batch system's queue, the
solver's process, the rendezvous store, and the workers: these decide with `offcut.membership`, and compute nothing.

- `campaign`: runs one seed; `shrink`: finds a shortest schedule that still fails
- `actions`: what befalls a world, drawn by seed; `injection`: carries it out
- `commons`: what the parts share; `world`: all parts of one simulated run
- `trace`: what happened there, with its digest
- `invariants`: what must hold after every event; `ledger`: what a job's training has really done
- `simulated_loop`: the event loop, the clock and the processes; `pipes`, `network`: what connects them
- `controller_run`: the controller's service; `journal_disk`: the disk under its journal; `nodes`: agents and workers
- `local_queue`: the daemon of virtual nodes; `slurm_queue`: a Slurm
- `member`, `member_surroundings`: a worker's part in the training; `worker_link`: its connection to the agent
- `collectives`: what members tell each other
"""
