"""What if: a virtual clock over recorded traces.

- `queue`, `queue_policy`, `queue_profile`: the main queue's scheduler (first come first served, EASY, conservative)
"""
