"""The trade of time against memory: all strategies that no other one beats in both (FT, arXiv 2004.10856; TensorOpt).

- `points`: sets of (memory, time) points, and their algebra
- `strategy_graph`: the exact frontier of a graph of operations, each of which can run in several ways
- `chain`: the frontier of a long chain of layers, with a proof of how far it may be from exact
- `layer_strategies`: the ways in which devices together can run a layer: whole, replicated, split, recomputed
- `size_frontier`: the frontier of every size, pipelines included, and the scaling curve that follows from it
"""
