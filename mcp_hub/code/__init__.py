"""Runs scripts of strangers in worker processes of their own, step by step. Knows no house.

In: a script, the names and stubs of what it may call, limits. Out: steps, each with new calls and the whole state.

- `engine`: sessions and their workers
- `steps`: records of a run, its errors
- `worker`: one script in one process, synchronous; alone imports the engine's package
- `source`: the text of a script: fence, size, names, lines, attributes of exceptions
- `diagnostics`: which complaints of the check of types are mistakes of a script, which exceptions are limits
- `values`: results of tools as values of a script, its output as a result
- `signatures`: tools as Python functions: one line for a model, stubs for a type checker
- `tool`: `run_code`, and the names of other tools in a script

The engine's client for asyncio is not used. Its threads call into Python, also when a loop has ended; up to 3.13 a
thread that does so while the interpreter ends is unwound through Rust, which aborts the process (9 of 54 runs here).
The synchronous client calls Python in our threads only, and a session's end kills its worker and waits for its thread
(0 of 90 runs).
"""
