"""Runs of scripts: durable calls of the hub's own that make other calls.

In: a script, and its calls as the engine gives them.

Out: events and sealed states of the run; inner calls of the same session; the script's result.

- `state`: what another hub needs to continue a run, sealed
- `consent`: what a script may call now, and the question to its caller
- `inner`: one inner call: looked up after a takeover, its ending as the script gets it
- `sending`: the inner calls of one run
- `run`: one run, from step to step: engine, commits
- `runs`: all runs of a hub, and the same code again

Nothing leaves the engine between two commits. A call is sent only after the state that names it is safe. No writing
call is sent twice: if its outcome is not known, the script gets an exception.
"""
