"""The commands around a hub that runs, or ran: is it there, what did its servers write, how does it start by itself.

In: parsed options, the configuration's place, and the records and logs in the state folder.

Out: an exit code, and output by way of `cli.render`.

Held together by the table in `mcp_hub.cli`. `status` finds the hub of a configuration, or ends it (`stop`); `logs`
prints the logs of its servers, `service` (with `units`) has the system start it with the session. `watch` opens the
dashboard, or the screen of `mcp-hub top`. `paths` names all files of the hub, `history` shows the calls that have
ended. `editors` are for editors and shells. `attached` is the background hub, which `serve` starts. No other command
here starts a server.

Not here: commands that ask a hub or its servers to do something (`cli.commands`), and the files of clients
(`cli.commands.clients`).
"""
