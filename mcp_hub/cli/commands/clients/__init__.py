"""The commands about other clients: they put the hub into them, take it out again, and take over their servers.

In: names of clients, or of a file with servers, and options.

Out: changed files of clients, each shown as a difference and recorded to be undone; servers of clients in
`servers.yaml`; an exit code of 1 if a client could not be changed.

Held together by `steps`, which finds the files, shows what is planned, does it, undoes it and says how it went.
`install` (with `--import`), `uninstall`, `leave`, `export`, `import_servers` and `init` are the commands.
`import_dialog` shows a person what an import takes, and asks for the values that are missing.

Not here: all that is known about clients (`onboarding.clients`, `onboarding.imports`).
"""
