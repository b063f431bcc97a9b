"""Traces of batch queues: records of jobs and of idle nodes, read, written, summarised and generated.

- `text_file`: text files, gzipped or not, with errors that name the file
- `windows`: idle windows, `node,start_s,end_s` (our own format)
- `job_list`: malleable jobs with their scaling curves (our own format); `start_times`: the job starts of a schedule
- `learning_curves`: the objective of many configurations of a training, budget by budget (our own format)
- `batch_log`: the rigid jobs of a batch log, whichever format it was read from
- `swf`, `sacct`, `sacct_json`, `philly`: readers of batch logs; `read_log`: chooses the reader
- `slurm_record`, `hostlist`: what the two readers of Slurm's accounting share
- `idle_from_log`: the idle windows of a batch log; `free_nodes`: places jobs on nodes by one rule and records the
  windows
- `statistics`: statistics of a set of windows
- `window_process`: the random process that generates windows; `generate`: draws windows from it, for any number of
  nodes; `fit_window_process`: fits the process to a given trace
"""
