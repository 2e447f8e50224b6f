"""Benchmark of the hub: ratios to a limit relay and to other proxies, all measured within one run.

`python -m bench` (or `make bench`) runs it; `docs/benchmarks.md` says what each case means.
"""
