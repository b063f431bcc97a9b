"""The running controller: events in, effects out.

The loop:

- `controller`: journal, step, effects: the loop
- `generation_sender`: which generation the agents are told, and where its members meet
- `agent_messages`: a job's launch as a message, agents' reports as events
- `agents`, `crews`: connections of agents, noticing when one is gone; which workers each was told to run
- `solver`, `call_process`: allocation problems answered in a process of their own, killed when it is late
- `supervise`: background tasks, restarted when they fail
- `clock`, `meters`, `metrics`, `telemetry`: event times; measured throughput; the run's figures; samples for the report

The listeners:

- `app`, `job_routes`, `node_routes`, `refusals`, `body_limit`: the owner's API
- `agent_server`, `agent_socket`, `dialogue`, `limits`: the listener that agents dial
- `listen`: where that is
- `views`, `explain`: what people and programs are shown

What is around it:

- `paths`, `lease`: what lies where; one controller at a time for a shared directory
- `clusters`, `config`, `planned`: the cluster, the configuration file, the plans of pipeline jobs
- `rendezvous`: the store through which members find each other, kept alive or adopted; `rendezvous_server`,
  `rendezvous_keys`: the store itself, a program of its own
- `run`, `endings`: all of it together, until it is told to stop, and that it does stop
"""
