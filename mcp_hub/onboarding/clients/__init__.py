"""The MCP clients of a person: where each keeps its servers, in which form, and how it starts the hub.

In: an operating system, a home folder and an environment (`Where`), and the text of files.

Out: paths, servers as a client has them, and the entry of the hub.

Held together by `table`: one row of data for each client, in the form of `model`. `places` turns the rows into paths,
`reading` looks which of the files are there, and reads the servers of one. `entries` fills in the entry to write,
with the command that starts the hub; `exported` writes a server of ours as a client has it. `programs` looks whether
a client runs, and runs its own command. `wsl` finds the clients on the Windows around this Linux.

All of it works for any operating system on any other: nothing asks the process where it runs, but `Where.here`.

Not here: changes of the files (`onboarding.changes`), the commands (`cli.commands.clients`), and servers in the format
of `servers.yaml` (`config`).
"""
