"""Suggests the parameters of trials by Optuna, and runs schedulers in users' files, in processes of their own.

- `searcher`: asks the process for what searches wait for, and kills it when it is late
- `questions`: what it is asked, as plain data
- `user_schedulers`: asks schedulers in users' files for decisions, in a process that is killed when it is late
- `storage`: whether a study can be stored
- `optuna_process`: what runs in the process, the only module that imports Optuna
"""
