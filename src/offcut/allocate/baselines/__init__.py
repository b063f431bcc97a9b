"""Ways to decide that the exact solver is compared with: one file each, one function of the problem each."""
