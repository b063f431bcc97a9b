"""Tables, figures and one-file HTML: what people look at.

- `page`: a page that is one file
- `run`, `timeline`, `figures`: a controller's run, told by its journal
- `pipeline`: a pipeline plan as a Gantt figure
- `replay_rows`, `replay_page`: the metrics of replays as rows of text, and as a page
- `estimate_page`: the page of `offcut estimate`
"""
