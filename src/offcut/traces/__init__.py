"""Traces of batch queues: what was recorded of jobs and of idle nodes, read, written, described and imitated.

- `textfile`: text files, gzipped or not, with errors that name the file
- `windows`: idle windows, `node,start_s,end_s` (our own format)
- `joblist`: malleable jobs with their curves (our own format)
- `batch`: the rigid jobs of a batch log, whatever it was read from
- `swf`, `sacct`, `philly`: readers of batch logs; `log`: picks the right one
- `idle`: idle windows out of a batch log
- `statistics`: what a set of windows looks like in numbers; `figure`: the same to look at
- `process`: the random process that imitates windows; `generate`: draws windows from it, at any machine size
"""
