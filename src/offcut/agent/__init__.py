"""The agent, which runs on a claimed node: starts and ends workers, obeys the queue, connects to the controller.

- `agent`: the process: messages of the controller in, reports out, and releasing the node in time
- `controller_dial`: how it reaches the controller
- `controller_link`: the connection to the controller, which may be cut and come back
- `job_workers`: the interface of one job's workers on this node
- `session_workers`: workers whose script has a session
- `restart_workers`: workers whose script does not use offcut
- `launch_network`: over which network the ranks of such a script meet
- `node_system`: what the agent does to its node: processes, logs, ports
- `rank_processes`: starting and ending a job's ranks, and reporting how they ended
- `rank`: one worker process and its connection to the agent
- `devices`: which of the node's accelerators each rank sees
- `launch`: starting a worker's process, and making sure that it ends; `worker_process`: what is started
- `trial_scripts`: loading the script of a sweep once, and forking its trials
- `heartbeat_timeouts`: decides when a silent worker counts as frozen
- `escaped_processes`: ending processes that escaped their process group
- `disks`: finds out whether a worker failed because its files could not be written
- `agent_exit_watchdog`: ending the agent in time whatever its event loop does
- `template`: the process that agents are forked from, where nodes share a machine
"""
