"""A request as the client names things → the server, and the request as that server names them; or why not."""

import json
from typing import Any

import msgspec
import pytest

from mcp_hub.catalog.offers.filters import Filter
from mcp_hub.catalog.offers.rules import Override, ServerRules, Supplied, ViewRules
from mcp_hub.catalog.routes import route
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.errors import InvalidParams, UnknownEntry
from mcp_hub.types import Era, Kind, RawObject, Snapshot, UpstreamState, UpstreamStatus
from tests.unit.catalog.offers import tool

HANDSHAKE, MODERN = Era.HANDSHAKE, Era.MODERN


def named(*names: str) -> tuple[bytes, ...]:
    return tuple(map(tool, names))


def with_uri(field: str, *uris: str) -> tuple[bytes, ...]:
    return tuple(json.dumps({field: uri, "name": "n"}).encode() for uri in uris)


def offer(server: str, **lists: tuple[bytes, ...]) -> Snapshot:
    return Snapshot(server, HANDSHAKE, {Kind(kind): raws for kind, raws in lists.items()})


VIEW: CatalogView = build(
    [
        offer(
            "git",
            tool=named("log", "secret", 'odd "name"'),
            prompt=named("review"),
            resource=with_uri("uri", "file:///a", "shared:x"),
            template=with_uri("uriTemplate", "git://{ref}", "shared://{id}"),
        ),
        offer(
            "git_hub",
            tool=named("log"),
            prompt=named("review"),
            resource=with_uri("uri", "shared:x"),
            template=with_uri("uriTemplate", "shared://{id}"),
        ),
    ],
    ViewRules({"git": ServerRules("git", tools=Filter(deny=("*secret",))), "git_hub": ServerRules("git_hub")}),
)
SHARED = VIEW.exported_uri("git_hub", "shared:x")
(SHARED_TEMPLATE,) = (
    entry.exported for entry in VIEW.entries(Kind.TEMPLATE) if (entry.server, entry.key) == ("git_hub", "shared://{id}")
)


def raws(params: dict[str, Any]) -> RawObject:
    return {key: msgspec.Raw(json.dumps(value).encode()) for key, value in params.items()}


def routed(method: str, params: dict[str, Any], era: Era = MODERN) -> tuple[str, Any]:
    to = route(VIEW, era, method, raws(params))
    return to.server, json.loads(msgspec.json.encode(to.params))


@pytest.mark.parametrize("method", ["tools/call", "prompts/get"])
def test_an_exported_name_becomes_the_upstreams_own_and_the_rest_stays(method: str) -> None:
    key = "log" if method == "tools/call" else "review"
    params = {"arguments": {"n": 1}, "x-future": [1, {"a": None}]}
    assert routed(method, {"name": f"git_{key}", **params}) == ("git", {"name": key, **params})
    assert routed(method, {"name": f"git_hub_{key}", **params}) == ("git_hub", {"name": key, **params})


def test_arguments_travel_as_they_were_written() -> None:
    arguments = msgspec.Raw(b'{ "n": 1.10, "big": 123456789012345678901234567890 }')
    to = route(VIEW, MODERN, "tools/call", {"name": msgspec.Raw(b'"git_log"'), "arguments": arguments})
    assert to.params["arguments"] is arguments


def test_a_name_that_needs_escapes_is_restored_exactly() -> None:
    (exported,) = (entry.exported for entry in VIEW.entries(Kind.TOOL) if entry.key == 'odd "name"')
    assert routed("tools/call", {"name": exported}) == ("git", {"name": 'odd "name"'})


@pytest.mark.parametrize(
    ("method", "params", "match"),
    [
        ("tools/call", {}, "tools/call: params.name must be a string"),
        ("tools/call", {"name": 5}, "params.name must be a string"),
        ("tools/call", {"name": None}, "params.name must be a string"),
        ("tools/call", {"name": "git_log", "arguments": [1]}, "params.arguments must be an object"),
        ("tools/call", {"name": "git_log", "arguments": "{}"}, "params.arguments must be an object"),
        ("prompts/get", {}, "prompts/get: params.name must be a string"),
        ("prompts/get", {"name": "git_review", "arguments": 5}, "params.arguments must be an object"),
        ("resources/read", {}, "resources/read: params.uri must be a string"),
        ("resources/read", {"uri": ["x"]}, "params.uri must be a string"),
        ("completion/complete", {}, "completion/complete: params.ref must be an object"),
        ("completion/complete", {"ref": None}, "params.ref must be an object"),
        ("completion/complete", {"ref": "x"}, "params.ref must be an object"),
        ("completion/complete", {"ref": {}}, "ref: params.type must be a string"),
        ("completion/complete", {"ref": {"type": "ref/tool"}}, "unknown params.ref.type 'ref/tool'"),
        ("completion/complete", {"ref": {"type": "ref/prompt"}}, "ref: params.name must be a string"),
        ("completion/complete", {"ref": {"type": "ref/resource", "uri": 5}}, "ref: params.uri must be a string"),
    ],
)
@pytest.mark.parametrize("era", Era)
def test_what_is_missing_or_of_a_wrong_type_is_named(era: Era, method: str, params: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidParams, match=match) as caught:
        routed(method, params, era)
    assert caught.value.code == -32602 and not isinstance(caught.value, UnknownEntry)


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("name", ["git_lgo", "log", "git_secret", "secret", "git_review", "GIT_LOG", "", "x" * 10_000])
def test_an_unknown_tool_is_invalid_params_and_hidden_is_unknown(era: Era, name: str) -> None:
    with pytest.raises(UnknownEntry, match="Unknown tool: ") as caught:
        routed("tools/call", {"name": name}, era)
    assert caught.value.code == -32602 and len(str(caught.value)) < 500
    assert caught.value.data is not None and "git_secret" not in caught.value.data["nearest"]


def test_the_nearest_names_are_offered() -> None:
    with pytest.raises(UnknownEntry, match=r"Unknown tool: git_lgo. Did you mean .*git_log") as caught:
        routed("tools/call", {"name": "git_lgo"})
    assert caught.value.data is not None and "git_log" in caught.value.data["nearest"]
    with pytest.raises(UnknownEntry, match="Unknown prompt: zzz$"):
        routed("prompts/get", {"name": "zzz"})


DEAD = UpstreamStatus("rv", UpstreamState.FAILED, "exited with code 9. Last output: eyJhbGciOi.secret.signed")


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "git_lgo"}),
        ("prompts/get", {"name": "git_lgo"}),
        ("completion/complete", {"ref": {"type": "ref/prompt", "name": "git_lgo"}}),
    ],
)
def test_an_error_names_the_state_of_an_unlisted_server_and_no_other_name(method: str, params: dict[str, Any]) -> None:
    with pytest.raises(UnknownEntry) as caught:
        route(VIEW, MODERN, method, raws(params), lambda name: DEAD if name == "git_lgo" else None)
    told = str(caught.value)
    assert told.endswith('git_lgo. Its server "rv" has failed: exited with code 9. Last output: ***')
    assert caught.value.data is not None and caught.value.data["nearest"] == []
    assert "signed" not in json.dumps(caught.value.data)


def test_a_resource_is_read_where_it_is_under_its_own_uri() -> None:
    assert routed("resources/read", {"uri": "file:///a", "x": 1}) == ("git", {"uri": "file:///a", "x": 1})
    assert routed("resources/read", {"uri": "shared:x"}) == ("git", {"uri": "shared:x"})
    assert SHARED != "shared:x"
    assert routed("resources/read", {"uri": SHARED}) == ("git_hub", {"uri": "shared:x"})
    assert routed("resources/read", {"uri": "git://main"}) == ("git", {"uri": "git://main"})


@pytest.mark.parametrize(("era", "code"), [(HANDSHAKE, -32002), (MODERN, -32602)])
@pytest.mark.parametrize("method", ["resources/read", "completion/complete"])
def test_an_unknown_resource_has_the_code_of_the_era_and_says_which(era: Era, code: int, method: str) -> None:
    uri = "nobody://" + "x" * 2000
    params = {"uri": uri} if method == "resources/read" else {"ref": {"type": "ref/resource", "uri": uri}}
    view = build([offer("git", tool=named("log"))], ViewRules({"git": ServerRules()}))
    with pytest.raises(UnknownEntry, match="Resource not found: nobody://") as caught:
        route(view, era, method, raws(params))
    assert caught.value.code == code and caught.value.data == {"uri": uri}
    assert len(str(caught.value)) < 600


def test_a_completion_goes_to_the_prompts_server_under_its_own_name() -> None:
    params = {"argument": {"name": "a", "value": "v"}, "context": {"arguments": {}}}
    for prefix, server in (("git", "git"), ("git_hub", "git_hub")):
        ref = {"type": "ref/prompt", "name": f"{prefix}_review", "title": "kept"}
        expected = {"ref": {"type": "ref/prompt", "name": "review", "title": "kept"}, **params}
        assert routed("completion/complete", {"ref": ref, **params}) == (server, expected)
    with pytest.raises(UnknownEntry, match="Unknown prompt"):
        routed("completion/complete", {"ref": {"type": "ref/prompt", "name": "review"}})


def test_a_completion_goes_to_the_templates_server_under_its_own_template() -> None:
    for exported, server, own in (
        ("git://{ref}", "git", "git://{ref}"),
        ("shared://{id}", "git", "shared://{id}"),
        (SHARED_TEMPLATE, "git_hub", "shared://{id}"),
        (SHARED, "git_hub", "shared:x"),
    ):
        ref = {"type": "ref/resource", "uri": exported}
        assert routed("completion/complete", {"ref": ref}) == (server, {"ref": {"type": "ref/resource", "uri": own}})


def supplying(arguments: dict[str, Any], fixed: dict[str, Any]) -> CatalogView:
    rules = ServerRules(overrides={"log": Override(supplied=Supplied(raws(arguments), raws(fixed)))})
    return build([offer("git", tool=named("log", "status"), prompt=named("log"))], ViewRules({"git": rules}))


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("{}", '{"n":5,"key":"k"}'),
        ('{"n":1.10}', '{"n":1.10,"key":"k"}'),
        ('{"n":null}', '{"n":null,"key":"k"}'),
        ('{"a":{"n" : 1}}', '{"a":{"n" : 1},"n":5,"key":"k"}'),
        ("null", '{"n":5,"key":"k"}'),
        (None, '{"n":5,"key":"k"}'),
        (r'{"\u006e":1}', '{"n":1,"key":"k"}'),
    ],
)
def test_arguments_of_the_settings_are_added_to_the_callers(given: str | None, sent: str) -> None:
    params = raws({"name": "log"})
    if given is not None:
        params["arguments"] = msgspec.Raw(given.encode())
    to = route(supplying({"n": 5}, {"key": "k"}), MODERN, "tools/call", params)
    assert bytes(to.params["arguments"]) == sent.encode()


@pytest.mark.parametrize("given", ['{"key":"mine"}', '{"key":null}', r'{"n":1,"\u006bey":1}', '{"a"'])
def test_argument_that_is_fixed_or_broken_is_refused_from_a_caller(given: str) -> None:
    params = {**raws({"name": "log"}), "arguments": msgspec.Raw(given.encode())}
    is_broken = given == '{"a"'
    message = "must be an object" if is_broken else "argument 'key' of log is set by the hub: leave it out"
    with pytest.raises(InvalidParams, match=message) as refused:
        route(supplying({"n": 5}, {}) if is_broken else supplying({}, {"key": "s3cret"}), MODERN, "tools/call", params)
    assert "s3cret" not in str(refused.value)


def test_other_tools_and_prompts_of_that_name_get_nothing_added() -> None:
    view = supplying({"n": 5}, {"key": "k"})
    for method, name in (("tools/call", "status"), ("prompts/get", "log")):
        params = raws({"name": name, "arguments": {"key": "x"}})
        assert route(view, MODERN, method, params).params is params
