"""The MCP clients of a person: their files, and the hub's entry in them.

Only `Where.here` depends on the operating system.

* `table`: one row per client
* `model`: the form of a row, paths of files
* `reading`: files and their servers
* `entries`: the hub's entry
* `exported`: our servers in a client's form
* `programs`: running clients, and their own commands
* `wsl`: the Windows around this Linux
"""
