"""The sandbox of a local server: the files, hosts and sockets that its process can reach.

In: the rule of one server, its command, folder and environment.

Out: a `Confinement`, which the start of a child applies, and a record of what was refused.

Held together by `confinement.Confinement`. `paths` finds the interpreter and the packages of a command, `places` has
the system folders and the table of secret places, `home` makes the private home folder. `launch` starts the confining
program (`confine_program`), which limits itself by Landlock and the seccomp filter of `filters` and then executes the
command. `connector` answers the `connect` calls of a server whose hosts are limited, and hands each connection to the
proxy of `network`. `seatbelt` writes the profile for macOS. `learning` notes what a server does without the rule of
files, and `proposal` makes a rule of it.

`server` is the sandbox of one server for all its starts; `rules` makes a `Confinement` of its rule.

Not here: the keys of the configuration (`config.schema.defaults`) and the start of processes (`upstreams.process`). The
hub itself is never confined.
"""
