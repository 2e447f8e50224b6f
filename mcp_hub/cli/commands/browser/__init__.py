"""The command that opens the dashboard of a running hub in a browser.

In: the configuration's place, and the record that its hub keeps in the state folder.

Out: a browser window, or the address on stdout.

Held together by `open`, which finds the record by way of `cli.access.running`. The address has the operator token of
the hub's start in its fragment, which no browser sends to a server. The browser is handed a small file that leads to
that address, because everybody on the machine can read the arguments of a program.

`top` shows the running hub on the terminal.

Not here: the page itself (`fronts.dashboard`), and starting a hub (`cli.commands.serve`).
"""
