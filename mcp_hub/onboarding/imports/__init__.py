"""Servers of other clients on their way into `servers.yaml`.

In: clients of the table (`onboarding.clients`), or a file; the servers that the hub has already.

Out: a plan: which servers are taken under which names and from where, which are not taken and why; then the changes of
files that carry it out, so that `import` can make them, and `install --import` can make and undo them with its own.

Held together by `plan`, which also finds doubles and gives names. `found` reads the servers of a client's file, which
`config.load.imported` brings into the form of ours.

Nothing is started or resolved before a person has seen what it is. Not here: other clients' files are only read.
"""
