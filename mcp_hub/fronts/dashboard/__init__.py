"""The dashboard: a page at `/` for people who watch and operate the hub, and `/api`, which only that page uses.

In: requests for the page and its modules, which hold no data and need no token; requests to `/api` with a token, from
the page itself.

Out: `GET /api/state`, a snapshot with a cursor; `GET /api/feed`, an event stream that continues behind a cursor; what
an operator reads and changes; and below `/api/v1` the REST API, so that the page needs no other path.

Held together by `ports.HubView`, `ports.HubOperator` and its `ports.HubEditor`, which `app.dashboard` implements.
`access` decides who comes in: with the operator token of this start or a token of the hub, from a page of this very
origin. `api` knows the routes and what each mode (`read`, `full`) may, `feed` sends news, `login` runs a login, `shell`
the page and its modules.

`static` is written by hand: ES modules without a build step, Preact and htm beside them in `vendor`. Everything that
servers or clients wrote is shown as text.

Not here: what a caller may see (`app.dashboard`), and any action of its own on calls (`fronts.rest`).
"""
