"""What the running controller measures of itself.

- `job_metrics`: resize latencies, throughput, node-seconds of training
- `event_metrics`: what the controller's events say; `node_use`, `release_times`: node-seconds, and how long the queue
  waits for nodes
- `prometheus`: all of it in the formats that Prometheus reads
"""
