"""The way of servers into the hub, and of the hub into other programs: files that the hub edits but does not own alone.

In: the files of MCP clients on this machine, `server.json` documents of a registry, the hub's own `servers.yaml`.

Out: plans for people to read, then changed files, each with a way back; or an error that leaves every file as it was.

Held together by one rule: a file is read, edited as text (`edit`), compared and replaced as a whole by `files`.
`clients` is the table of all clients and what their files hold. `changes` plans, makes, records and undoes changes of
these files. `imports` brings servers of clients into the form of ours, `registry` those of a registry. `servers_file`
changes the hub's own configuration.

Nothing here prints, asks a person, or starts a server. Not here: the commands (`cli.commands`), trial starts of new
servers (`cli.trials`), and how a configuration is read (`config`).
"""
