"""The table of ranks, which docs/architecture.md shows too, and the other facts that the rules about imports need."""

ORDER = [
    {"__main__"},
    {"cli", "library"},
    {"onboarding"},
    {"app", "client", "conformance", "examples"},
    {"fronts"},
    {"hub"},
    {"event_port", "session_views"},
    {"calls", "catalog", "sessions", "upstreams"},
    {"sandbox", "stores", "wire"},
    {"call", "formats"},
    {"edit", "protocol"},
    {"config", "events"},
    {"code", "selection"},
    {"aio", "errors", "ids"},
    {"logs"},
    {
        "addresses",
        "attach",
        "clock",
        "codes",
        "extras",
        "files",
        "masking",
        "methods",
        "notices",
        "schema",
        "syntax",
        "types",
    },
    {"globs", "secret_forms", "windows"},
]
"""Top imports bottom only; names of one rank never import each other."""

RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}

CLIENT_MAY = {"types", "errors", "events", "protocol", "client", "extras"}
"""The client is a program of its own that happens to live here."""

FRONTS_MAY = {
    *("fronts", "hub", "call", "events", "notices", "protocol", "sessions", "types", "errors", "clock", "ids", "aio"),
    *("masking", "wire", "logs", "formats", "files", "extras", "selection"),
}
"""Everything else that a front needs goes through the port, `hub`."""

HUB_MAY_NOT = {"upstreams"}
"""The hub gets these at its construction, as protocols of `call`."""

ABSTRACT = {"hub", "catalog", "calls", "sessions", "fronts"}
CONCRETE = {"config", "stores", "upstreams"}
SEAMS = {"upstreams.executors.posts", "stores.base", "stores.documents", "stores.history.base"}
"""The abstract packages import nothing of the concrete ones but these."""

PURE = {
    *("types", "schema", "events", "errors", "call", "config.plan", "edit", "protocol", "formats"),
    *("catalog.compact", "catalog.offers", "catalog.resources", "catalog.texts", "catalog.views"),
    *("catalog.flags", "catalog.pins", "catalog.routes", "catalog.tokens"),
    *("catalog.discovery.answers", "catalog.trust.scan"),
    *(f"catalog.search.{name}" for name in ("ranker", "documents", "queries", "words")),
    *("calls.machine", "calls.coalesce", "calls.results.truncate"),
    *("code.signatures", "code.tool"),
    *("selection", "calls.results.paging", "calls.results.projection", "calls.results.json_records"),
    *("upstreams.supervision.lifecycle", "upstreams.executors.posts"),
    *("client.stream_reader", "client.rest"),
    *("app.catalog_rules", "fronts.http.auth"),
    *("stores.base", "stores.documents"),
}
IMPURE = {"anyio", "asyncio", "socket", "subprocess", "starlette", "uvicorn", "sqlite3", "structlog"}
"""Pure modules import none of these."""

SDK = {"upstreams.auth", "library", "examples"}
"""Where the packages `mcp` and `mcp_types` may be imported."""

ASYNCIO = {"aio", "wire", "calls.runner", "stores.sqlite.worker"}
"""Where asyncio may be imported; everything else takes anyio, or `aio`."""

LAZY = {"", "__main__", "attach", "cli"}
"""Where an import may stand inside a function; the empty name is `mcp_hub/__init__`."""
