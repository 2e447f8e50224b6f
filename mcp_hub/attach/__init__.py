"""Attach: `mcp-hub serve` over stdio joins its user's background hub. It imports little, so that clients start fast.

`serve`: the entry
`arguments`: its command line
`variables`: those of a configuration
`environment`: of hubs and servers
`folder`: of one hub
`client`: finds a hub
`join`: connects to it
`start`: starts it
`hello`: first messages
`build`: order of versions
`pipes`: shim to hub
`shim`: relays lines
`open_requests`: for the next hub
`machine`: unusable folders
`system`: user, folders, locks
"""
