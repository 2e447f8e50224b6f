"""Commands that change which servers the hub has, and how they run: they edit `servers.yaml` as text.

In: a command line, a URL, or the `server.json` of a registry; the name of a server.

Out: the file with one server more, less or switched; all comments, the order and every other byte stay.

Held together by `onboarding.servers_file`, which edits and writes the file for all of them. `add`, `remove` (with
`enable` and `disable`), `edit` and `sandbox` are the commands; `changed` is what they share: what they print, and how
they end when the file does not allow a change.

A running hub reloads the file automatically. Not here: servers of other clients (`cli.commands.clients`).
"""
