"""Measurements that a checkout makes and a robot does not need: `python -m benchmarks NAME`."""
