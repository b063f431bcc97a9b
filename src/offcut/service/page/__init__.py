"""The page: what the running controller does, in a browser, live.

Everything is rendered here, with escaping; a browser gets HTML and the numbers of figures, and nothing from elsewhere.

- `server`: the application and its listener; `connections`: accepts connections within limits; `routes`: the
  addresses; `action_routes`: those that change something
- `token_file`, `login`: the secret that opens the page; `security_headers`: what a browser may do with the answers
- `views`: the parts of each view; `overview`, `job_view`, `node_view`: what they show, as plain data; `log_tail`: the
  end of a job's logs
- `node_use`: who had the nodes over time
- `rendering`: the templates in `templates/`; `live_updates`: sends changed parts of a view to all who look at it
- `static/`: style and script; `static/vendor/`: libraries of others, unchanged
"""
