"""The commands of `mcp-hub`, one module for each or for a pair that belongs together.

In: parsed options from click, which are complete except for the configuration.

Out: an exit code, and output by way of `cli.render`.

Held together by the table in `mcp_hub.cli`, which names the module and function of every command and imports it only
when it is called. `serve` runs a hub. `call` makes a call, reads a resource or gets a prompt; `streams` works with
durable calls. `list`, `tools`, `tokens`, `search`, `check` and `doctor` (which finds `repairs`) inspect a configuration
and its servers. `approve`, `login` and `reload` change what running hubs do. Sub-packages: `servers` changes the
configuration, `clients` is about other clients, `running` about a hub that runs.

A command reads its options, asks `cli.access` or `app` for a hub, and hands plain data to `cli.render`. Decisions
about what to show are functions without I/O, so that they can be tested without a terminal.

Not here: how a hub is reached, and how anything looks on a terminal.
"""
