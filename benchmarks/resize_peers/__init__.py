"""The systems of `benchmarks/resize.py`: the training script of each, how it is started, and how members come and go."""
