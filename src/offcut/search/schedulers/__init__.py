"""Trial schedulers: which trials of a sweep run on, halt or stop, and which one comes next.

- `base`: the Protocol, and what a scheduler decides and is shown
- `run_all`: every trial runs to its whole budget
- `promotion_asha`: successive halving that halts trials and promotes the best later
- `stopping_asha`: successive halving that stops trials
- `hyperband`: brackets of successive halving
- `median_stopping`: stops trials that are worse than the median
- `population_based`: trials that fall behind continue from a better one's state
- `regularized_evolution`: new trials are mutations of good young ones
- `load`: finds a scheduler by its name, or in a user's file
"""
