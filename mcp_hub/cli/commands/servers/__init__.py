"""Commands that change which servers the hub has: they edit `servers.yaml` as text.

In: a command line, a URL, the `server.json` of a registry, or the files of other clients.

Out: the file with one server more, less or switched; all comments, the order and every other byte stay.

Held together by `cli.servers_file`, which edits and writes the file for all of them. `add`, `remove` (with `enable` and
`disable`), `edit`, `init` and `import_servers` are the commands; `changed` is what they share: what they print, and how
they end when the file does not allow a change.

A running hub reloads the file automatically. Not here: the files of other clients (`cli.imports`, `cli.clients`).
"""
