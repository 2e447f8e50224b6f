"""Files of other programs: replaced as a whole and never half, with a way back.

In: an act, which is a list of files with the change of each.

Out: the files changed, a backup beside each, and a record of the act, by which it can be undone.

Held together by `acts`: it reads all files, writes the record, and only then replaces one file after the other.
`replace` replaces one: temporary file, flush, comparison, rename. `written` remembers the entries of the hub, so that
one that a client has lost can be found. `installed` looks at all clients of this machine.

A process that is killed at any point leaves each file as it was or as it was meant to be.

Not here: the content of the files (`cli.clients.edit`).
"""
