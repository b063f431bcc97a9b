"""Tables, figures and one-file HTML: what people look at.

- `page`: a page that is one file
- `run`, `timeline`, `figures`: a controller's run, told by its journal
- `pipeline`: a pipeline plan as a Gantt figure
"""
