"""Fault injection: `fault_injection` lets a worker fail at a named point, if the environment says so."""
