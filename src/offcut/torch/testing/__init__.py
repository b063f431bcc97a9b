"""What tests of trainings use.

- `fault_injection`: lets a worker fail at a named point, if the environment says so
- `fake_accelerator`: a transport that behaves as one between accelerators does
"""
