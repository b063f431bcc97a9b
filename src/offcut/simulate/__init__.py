"""What if: a virtual clock over recorded traces.

- `queue`, `queue_policy`, `queue_profile`: the main queue's scheduler (first come first served, EASY, conservative)
- `replay`: windows and jobs through the real controller, to metrics; `sweep`: several replays in parallel processes
- `options`: what a replay may be asked to assume
- `world`: the controller's effects, carried out under a virtual clock; `supply`: which jobs come when
- `training`: one job that progresses along its curve; `accounts`, `fluid`: the bound; `metrics`: what came of it
- `observer`: what a replay shows to the profiler
- `estimate`, `networks`: what a site would gain
"""
