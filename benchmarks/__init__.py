"""Measurements that need a checkout and that a robot does not need: `python -m benchmarks NAME`. This folder is not installed."""
