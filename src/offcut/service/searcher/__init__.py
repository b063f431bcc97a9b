"""Suggests the parameters of trials by Optuna, in a process of its own.

- `searcher`: asks the process for what searches wait for, and kills it when it is late
- `questions`: what it is asked, as plain data
- `optuna_process`: what runs in the process, the only module that imports Optuna
"""
