"""Trust on first use: which tools have changed since they were approved, and which definitions look dangerous.

In: the definitions that servers list now, the records of earlier lists on disk, and the approvals of a person.

Out: findings for each tool (new, changed, held back), and flags: hidden characters, instructions to the model, names
that belong to another server.

Held together by `approvals`, which compares lists with their records in memory, writes new records in a worker thread,
and notices within a second what another process approved. `diff` shows a person what has changed. `scan` searches all
definitions for flags, `scan_log` writes each flag to the log once.

Not here: the record of one server and the recognition of one flag (`catalog.pins`, `catalog.flags`), the files
(`stores.keyed_files`), and the command with which a person approves (`cli.commands.approve`).
"""
