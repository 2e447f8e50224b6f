"""Child processes: stdio servers started, connected and ended, with everything that they started themselves.

In: a command, its environment and working directory; the era that the server had last time.

Out: a `Connection` with a negotiated session, or `StartFailed` with what was tried; a description of how it ended.

Held together by `stdio.StdioConnection`. `commands` finds the program and composes its environment, `descriptors` keeps
room for its files. `child` starts it in a process group of its own and ends the group before its leader is reaped, so
that a signal never reaches a stranger.

`lookups` runs the programs whose outputs are secret values of servers. `last_output` finds why a process died.

No process outlives its server, and no server outlives the hub: `watchdog` finds descendants by their environment and
session, `reaper` adopts and collects orphans, and `watchdog_process` with `watchdog_program` does the same from a
small separate process when the hub itself is killed.

Not here: messages (`wire.pipe`, `upstreams.peer`) and the decision to start again (`upstreams.supervision`).
"""
