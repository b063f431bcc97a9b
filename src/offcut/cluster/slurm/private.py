"""The old name of `offcut.cluster.slurm.testbed`, which works for one more version."""

import sys

from offcut.cluster.slurm.testbed import main

if __name__ == "__main__":
    sys.stderr.write("offcut: offcut.cluster.slurm.private is now called offcut.cluster.slurm.testbed\n")
    sys.exit(main())
