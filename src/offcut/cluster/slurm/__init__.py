"""Slurm: idle nodes are claimed by one-node pilot jobs, and released when its queue wants them.

- `site`: what a site's file says: mode, partition, caps, quiet hours
- `records`: nodes, jobs, reservations, partitions as Slurm shows them
- `text`, `schema`: reading them, from the commands' text and from their JSON (pure)
- `slurm_config`: how this Slurm is set up: configuration, partitions, nodes, QOS, our associations
- `modes`: which mode fits, and how long a pilot may run (pure)
- `hazards`: what in a Slurm's setup costs its queue or its users something (pure)
- `idle_nodes`: which idle nodes are safe to claim, for how long, and why (pure)
- `waiting_jobs`: which of our nodes to leave for jobs that wait (pure)
- `site_rules`: what administrators allow all controllers: a file that only root writes
- `limit_relief`: which of our nodes to leave for jobs that pend on a limit of the account or QOS (pure)
- `limits`: caps, quiet hours, the pause after repeated failures (pure)
- `claim_choice`: which of the safe ones to claim now, and which held ones are too many (pure)
- `shares`: how many nodes each of several users' controllers may hold (pure)
- `power`: which nodes the site may power down (pure)
- `decision`: what to do after a look at the queue, out of all these (pure)
- `pilot_script`: a pilot's name, options and script (pure)
- `pilot_state`: the states of a pilot, and what a query says about its next one (pure)
- `pilot_commands`: submitting and cancelling pilots
- `set_aside`: nodes that are not claimed for a while
- `pilot_table`: the pilots of one controller, from submission to end
- `share_request`: the job by which a controller asks others for nodes
- `account`: under which account this process runs
- `commands`: running Slurm's commands, with a time limit
- `queue_query`: one snapshot of the queue, out of four commands
- `adapter`: the Cluster made of these
- `site_survey`: what a site allows, for `offcut doctor`
- `testbed`: a real Slurm of virtual nodes under one directory, to try and to test with; `private` is its old name
"""
