"""What the running controller measures of itself.

- `job_metrics`: resize latencies, throughput, node-seconds of training
"""
