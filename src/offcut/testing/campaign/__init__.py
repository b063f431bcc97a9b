"""The campaign of faults: whole systems under a simulated clock, network and disk, in one thread, from one seed."""
