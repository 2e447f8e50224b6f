"""Lists of tools, and calls, in the formats of model providers.

`tools`: options of a query; lists, and entries for providers that connect to the hub
`search`: tools for a query
`calls`: a model's calls and their streams
`prompted`: calls as text

The conversion is in `mcp_hub.formats`.
"""
