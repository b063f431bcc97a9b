"""The sizes that remain under a limit, and the table of the dynamic program over them (step 3)."""

from __future__ import annotations

from typing import NamedTuple

from offcut.allocate.exact.pieces import Floats, Ints


class Options(NamedTuple):
    """The choices that remain under a limit: the jobs with a choice, and the runs of sizes of each.

    Job number `job[q]` has the options `start[q]`..`start[q + 1]`, in increasing order of size. Option i are the sizes
    `first[i]`..`last[i]`, counted from the job's smallest remaining size, with the regret
    `regret[i] + per_node[i] * (n - first[i])`. `left` is the number of nodes to share out among these jobs beyond their
    smallest sizes; negative: the smallest sizes together exceed the nodes.
    """

    job: Ints
    start: Ints
    first: Ints
    last: Ints
    regret: Floats
    per_node: Floats
    left: int


class Rows(NamedTuple):
    """The table of the dynamic program, row by row, all in one array.

    Row q holds, for each number w of nodes from `lower[q]` to `upper[q]`, the least total regret of the jobs q and
    later with exactly w nodes between them and the unused; it begins at `table[offset[q]]`. The last row is that of the
    unused nodes alone.
    """

    lower: Ints
    upper: Ints
    offset: Ints
    table: Floats
