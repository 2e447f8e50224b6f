"""Attach: `mcp-hub serve` over stdio joins its user's background hub. It imports little, so that clients start fast.

`serve`: the entry
`arguments`: its command line
`environment`: variables of hubs, servers, a configuration
`folder`: of one hub
`client`: finds a hub
`join`: connects to it, by pipes
`start`: starts it
`hello`: first messages, order of builds
`shim`: relays lines
`open_requests`: for the next hub
`machine`: unusable folders
`system`: user, folders, locks
"""
