"""The commands that put the hub into other clients, and take it out again.

In: names of clients and options.

Out: changed files of clients, each shown as a difference and recorded to be undone; an exit code of 1 if a client could
not be changed.

Held together by `steps`, which finds the files, shows what is planned, does it, undoes it and says how it went.
`install`, `uninstall` and `leave` are the commands.

Not here: all that is known about clients (`cli.clients`).
"""
