"""Simulation under a virtual clock, over recorded traces.

- `batch_queue`: the main queue's batch scheduler; `batch_schedulers`: first come first served, EASY and conservative
  backfilling; `availability_profile`: the free nodes over time that conservative backfilling plans with
- `replay`: windows and jobs through the controller that runs live; `parallel_replays`: several replays in processes
- `options`: what a replay assumes; `replay_settings`: the settings and jobs that its controller gets
- `event_loop`: the virtual clock; tells the controller each event and carries out its effects; `scheduled_events`: what
  is due later;
  `job_arrivals`: which jobs are submitted when
- `sweep_replay`: a sweep on windows, through the search that runs live; `sweep_trials`: its trials, which report what a
  table of learning curves says
- `training`: one job that progresses along its scaling curve
- `time_integrals`: integrals over a replay; `fluid`: the upper bound on throughput; `metrics`: the results of a replay
- `noisy_meter`: the measured throughput that a replay shows to the curve model
- `estimate`, `imagenet_networks`: what a site would gain
"""
