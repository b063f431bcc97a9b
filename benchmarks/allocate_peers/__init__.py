"""The peers of `benchmarks/allocate.py`, one file each: `solve(problem, limit_s) -> (ms, objective, proven)`."""
