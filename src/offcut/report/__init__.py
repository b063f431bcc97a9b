"""Results for people: tables, figures, one-file HTML.

- `page`: one HTML file out of headings, paragraphs, tables and figures
- `replay_rows`: the metrics of replays as rows of text
- `replay_page`: the page of `offcut replay --report`
- `estimate_page`: the page of `offcut estimate`
"""
