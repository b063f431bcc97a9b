"""The search for the best plans of one size, and of all sizes as a scaling curve.

- `problem`: what is to be planned
- `device_chain`: the model's layers at the speed of each device, and the costs of stages made of them
- `partition`: exact splits of a chain of layers into stages
- `bound`: lower bounds of a step's time; `bound_searches`: the compiled searches behind them
- `candidates`: splits with a schedule, each with its lower bound
- `explore`: the exploration of one size; `rejected`: why the other plans lost
- `token_slices`: slices of the tokens of a causal language model (TeraPipe)
- `curve`: the best plans of all sizes as a scaling curve
"""
