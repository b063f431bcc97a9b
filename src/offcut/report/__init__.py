"""Tables, figures and HTML pages that are one file each.

- `html`: a page in one file
- `run_report`, `run_timeline`, `figures`: the report of a controller's run, from its journal
- `plan_figure`: a pipeline plan as a Gantt chart
- `frontier_figure`: throughput by memory per device, for every size
- `scaling_figure`: a job's scaling curve
- `windows_figure`: a set of idle windows
- `replay_rows`, `replay_page`: the metrics of replays as rows of text, and as a page
- `sweep_record`: what a report shows of a sweep, from the controller's events
- `sweep_page`, `sweep_figures`, `sweep_parameters`: the report of a sweep
- `estimate_page`: the page of `offcut estimate`
"""
