"""The dashboard: a page at `/` for operators, and `/api`, which only that page uses.

`ports`: the hub's side
`api`: its routes
`feed`: news
`asked`: calls that wait for a yes, and the page of a link
`shell`: the page, and callers of `/api`
`people`: logins at an OpenID provider

`static` has ES modules without a build step. Text of servers and clients is never HTML.
"""
