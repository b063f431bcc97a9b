"""Traces of batch queues: what was recorded of jobs and of idle nodes, read, written, described and imitated.

- `textfile`: text files, gzipped or not, with errors that name the file
- `windows`: idle windows, `node,start_s,end_s` (our own format)
- `joblist`: malleable jobs with their curves (our own format); `starts`: the starts of a schedule
- `batch`: the rigid jobs of a batch log, whatever it was read from
- `swf`, `sacct`, `sacct_json`, `philly`: readers of batch logs; `log`: picks the right one
- `slurm_record`, `hostlist`: what the two readers of Slurm's accounting share
- `idle`: idle windows out of a batch log; `freenodes`: places jobs on nodes by one rule and keeps the windows
- `statistics`: what a set of windows looks like in numbers; `figure`: the same to look at
- `process`: the random process that imitates windows; `generate`: draws windows from it, at any machine size;
  `fit`: finds the process that imitates a given trace
"""
