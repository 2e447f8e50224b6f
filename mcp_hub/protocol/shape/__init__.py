"""Internal values in the form of an era, a store or a REST client. Pure.

`results`          results, progress, log messages
`tasks`            the tasks extension
`questions`        input that servers ask for
`stream_events`    stored events and errors
`produced`         events of workers and servers
`occurrences`      MCP Events
"""
