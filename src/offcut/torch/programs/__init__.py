"""Programs that run as processes of their own, with `python -m`: the workers' fork server, and the layer profiler."""
