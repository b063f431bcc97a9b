"""The running controller: events in, effects out.

The loop:

- `controller`: journal, step, effects: the loop; `effect_runner`: carries the effects out
- `recovery`: a start after an earlier run: the journal compared with the nodes that are held
- `event_gatherer`: events of one moment become one
- `generation_sender`: which generation the agents are told, and where its members meet
- `agent_messages`: a job's launch as a message, agents' reports as events
- `agents`, `started_workers`: connections of agents, noticing when one is gone; which workers each was told to run
- `solver`, `call_process`: allocation problems answered in a process of their own, killed when it is late
- `supervise`: background tasks, restarted when they fail
- `retention`, `job_files`, `log_files`: jobs that ended long ago are forgotten and their files deleted, logs bounded
- `objective_files`: reads what the trials of sweeps report; `searcher`: suggests their parameters by Optuna;
  `state_copies`: copies the state of a trial for another one
- `clock`: event times; `throughput_reports`: measured throughput; `metrics`, `telemetry`: figures and samples of a run;
  `loss_history`: the losses of jobs; `durability`: what must be on the disk before its effects leave

The listeners:

- `app`, `job_routes`, `sweep_routes`, `node_routes`, `metric_routes`, `error_responses`, `body_limit`: the owner's API;
  `job_lookup`, `sweep_lookup`: which job or sweep is meant; `job_actions`: what may be asked of a job
- `agent_server`, `agent_socket`, `agent_protocol`, `limits`: the listener that agents dial
- `page`: the page for browsers, with a listener of its own
- `listen`: where these are
- `owner_connection`, `audit`: who is at the other end of the owner's socket, and what each asked for
- `views`, `explain`, `explain_trial`, `curve_report`: what people and programs are shown

What is around it:

- `paths`: the files and directories; `lease`, `lease_watch`: one controller at a time for a shared directory
- `clusters`, `config`, `pipeline_jobs`: the cluster, the configuration file, the plans of pipeline jobs
- `rendezvous`: the store through which members find each other, kept alive or adopted; `rendezvous_server`,
  `rendezvous_keys`: the store itself, a program of its own
- `run`: all of it together; `shutdown`: the signals that end it, and that it does end
"""
