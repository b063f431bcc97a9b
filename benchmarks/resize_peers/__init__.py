"""The systems of `benchmarks/resize.py`: the training script of each, and how its members come and go."""
