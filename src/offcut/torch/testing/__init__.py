"""Fault injection: `fault_injection` strikes a worker at a named point. Nothing happens unless the environment asks."""
