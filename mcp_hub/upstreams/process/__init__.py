"""Stdio servers as child processes. No process outlives its server, and no server the hub.

* `stdio`: a process and its session
* `commands`: programs and environments
* `child`: process groups, open files
* `lookups`: programs that print secret values
* `watchdog`, `watchdog_program`: end leftover processes
* `reaper`: adopts and reaps orphans
"""
