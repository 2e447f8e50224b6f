"""Output for people and programs: tables, progress on a terminal, JSON lines, diagnoses.

In: plain data: server states, definitions, events of a call, results.

Out: text on stdout, messages on stderr. Text that comes from a server reaches a terminal only without control
characters, and secrets of the configuration are masked.

Held together by `output`, which detects that stdout cannot be written, and `tables`, which prints tables, lines and
JSON. `servers` shows the servers of a hub, `renderers` a running call in one of four ways, `results` its result as
text or JSON lines, and saves what is not text in a folder. `diagnosis` maps the state of a server to a code and
advice; `notices` are warnings, warnings about tools included. `learning` shows a proposal for a sandbox.

rich is imported inside functions, because most commands and `serve` run without it.

Not here: any decision about exit codes, and waiting for anything.
"""
