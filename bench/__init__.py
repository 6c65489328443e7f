"""Benchmarks: workloads, targets and a runner that does not know either. Start with `python -m bench --help`."""
