"""Policies that the exact solver is compared with: one file each, with one function of the problem."""
