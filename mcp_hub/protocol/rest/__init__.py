"""JSON shapes of the REST API. Their docstrings are the descriptions in the OpenAPI document.

Requests refuse unknown members, answers ignore them. `JsonObjectText` stays encoded.

    `calls`                            tools, their execution and its streams; errors
    `history`                          past calls
    `servers`, `overview`              the hub's state; context tokens of tools
"""
