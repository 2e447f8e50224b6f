"""The hub's own configuration file, as commands change it: `servers.yaml`, or whatever file the hub is configured by.

In: a server under its name, in the keys of `servers.yaml`, or the name of one to remove or to switch.

Out: the file with this one change, or `ConfigError` and a file as it was.

Held together by `servers_file`, which finds the file, edits its text by `edit`, and checks the result before it
is written by `onboarding.files`: all or nothing, through links, with its rights, one writer at a time. `kept_secrets`
puts secrets where a configuration may refer to them. `proposals` has the edits of the dashboard, and those that wait
for a person; `risks` says which changes those are.

Not here: the servers of other clients (`onboarding.imports`, `onboarding.clients`).
"""
