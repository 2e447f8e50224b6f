"""Attach: `mcp-hub serve` over stdio joins the one background hub of its user and configuration.

In: the arguments of `serve`, the environment, a configuration file, and a client on stdin and stdout.

Out: the client's bytes, passed to the background hub and back. If anything goes wrong, the program runs the
whole command (`mcp_hub.__main__`), whose hub is the client's own.

Held together by `serve`. Before it, `machine` replaces folders that the process lacks. `arguments` understands the
plain forms of `mcp-hub serve`, `variables` finds the variables that a configuration names, and `folder` turns all this
into the folder of one hub. `client` joins that hub (`join`), or starts it (`start`, in the `environment` of no
client); `locks` say who lives. `hello` is the first message of both sides, `build` the order of versions; then `pipes`
connect them. `shim` relays lines, and `open_requests` remembers which are not answered, so that another hub can take
them up when this one dies.

It imports the standard library only, and little of that: a client's start costs a socket, not an interpreter full of
imports. Imports inside functions are for what few starts need.

`system` has the facts of the operating system: user, folders, locks on files.

Not here: the hub at the other end (`app.attached`).
"""
