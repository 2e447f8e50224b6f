"""Changes of clients' files: planned, made, recorded and undone.

In: a file of a client (`onboarding.clients`), and what it is to have: the hub's entry, or servers less or more.

Out: a step that people can read before it is made; then the files changed, a backup beside each, and a record of the
act, by which it can be undone.

Held together by `plan`, whose steps become the changes of an act. `hub_entry` puts the hub's entry into a text, takes
it out, and shows it; `entry_options` keeps the options of an entry that is there. `acts` reads all files, writes the
record, and only then replaces one file after the other; `restore` undoes a change in a file that was changed since.
`written` remembers the entries of the hub and the servers that came from clients, so that one that a client has lost
can be found, and looks at all clients of this machine.

A process that is killed at any point leaves each file as it was or as it was meant to be.

Not here: the replacement of one file (`onboarding.files`), and how a text is edited (`edit`).
"""
