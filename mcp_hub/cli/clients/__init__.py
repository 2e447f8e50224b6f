"""The MCP clients of a person: where each keeps its servers, and how the hub gets into its file and out of it again.

In: an operating system, a home folder and an environment (`Where`), and the text of files.

Out: paths, servers as a client has them, the entry of the hub, and a text that differs in exactly this entry.

Held together by `table`: one row of data for each client. `places` turns the rows into paths, `entries` into the entry
to write, `reading` reads the servers of a file.

All of it works for any operating system on any other: nothing asks the process where it runs, but `Where.here`.

Not here: the commands (`cli.commands.clients`), and servers in the format of `servers.yaml` (`config`).
"""
