"""Slurm: idle nodes are taken by one-node pilot jobs, and given back when its queue wants them.

- `site`: what a site's file says: mode, partition, caps, quiet hours
- `records`: nodes, jobs, reservations, partitions as Slurm shows them
- `text`, `schema`: reading them, from the commands' text and from their JSON (pure)
- `hole`: which idle nodes are safe to take, for how long, and why (pure)
- `manners`: caps, quiet hours, the pause after repeated failures (pure)
- `pilots`: the pilot's script and options, and what becomes of pilots (pure)
- `commands`: running Slurm's commands, with a time limit
- `look`: one bulk look at the queue, out of four commands
- `adapter`: the Cluster made of these
- `survey`: what a site allows, for `offcut doctor`
- `private`: a real Slurm of virtual nodes under one directory, to try and to test with
"""
