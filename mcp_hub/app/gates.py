"""The gates of calls from settings: conditions, a person's yes, and the webhook that gets a link to it."""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import anyio
import httpx2
import msgspec
from pydantic import JsonValue

from mcp_hub.addresses import address_of, normal_host, refused_target
from mcp_hub.aio import Bell
from mcp_hub.app.limits import Current, has_asks, has_conditions
from mcp_hub.call import Call, CallChannel, CallHandler, SentCall, Upstream
from mcp_hub.calls.gates.asking import Asking, AskRule, PendingAsk, strictest
from mcp_hub.calls.gates.conditions import Facts, Judge, allowing, compiled, denying, facts_of, ruling
from mcp_hub.calls.gates.steps import Gates, QuickStep, Step
from mcp_hub.calls.plan import Sender
from mcp_hub.calls.reading.stored import exported_name, own_name
from mcp_hub.catalog.catalog import caller_lists
from mcp_hub.catalog.offers.filters import HINTS
from mcp_hub.catalog.pins import tool_hash
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.clock import wall_time
from mcp_hub.config.schema.records import AskWebhookSettings, webhook_key
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.schema.tools import AskSettings, ToolSettings
from mcp_hub.events import Completed
from mcp_hub.globs import any_matches
from mcp_hub.hub import HubPort
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head, shown
from mcp_hub.types import CallId, Kind
from mcp_hub.wire.http_client import USER_AGENT, bad_proxy, pinned, proxy, resolved, tls
from mcp_hub.wire.responses import origin, reason_of

log = get_logger(__name__)

_REFUSED: Final = "a rule of this hub does not allow it with these arguments"

# -- rules


def entries_for(settings: Settings, server: str, tool: str) -> Iterator[tuple[str, ToolSettings]]:
    """All entries of `per_tool` that fit the tool, with places."""
    entry = settings.servers.get(server)
    for pattern, each in {} if entry is None else entry.per_tool.items():
        if pattern == tool or any_matches((pattern,), (tool,)):
            yield f'servers.{server}.per_tool["{pattern}"]', each


def judges_of(settings: Settings, server: str, tool: str) -> list[Judge]:
    """The conditions of each entry that fits a tool: all that deny, then all that allow."""
    entries = list(entries_for(settings, server, tool))
    judges = [
        denying(path, [compiled(each.patterns) for each in entry.deny_if], entry.reason or _REFUSED)
        for path, entry in entries
        if entry.deny_if
    ]
    return judges + [
        allowing(path, [compiled(each.patterns) for each in entry.allow_if], entry.reason or _REFUSED)
        for path, entry in entries
        if entry.allow_if is not None
    ]


def ask_rules_of(settings: Settings, server: str, tool: str, profiles: Iterable[str]) -> tuple[AskRule, ...]:
    """All rules that may ask before a call of a tool: of the tool, of the hub, and of the caller's profiles."""
    chosen = [(f"{path}.ask", entry.ask, False) for path, entry in entries_for(settings, server, tool)]
    chosen.append(("hub.ask", settings.hub.ask, True))
    chosen += [
        (f"profiles.{name}.ask", settings.profiles[name].ask, True) for name in profiles if name in settings.profiles
    ]
    return tuple(_ask_rule(path, ask, unread) for path, ask, unread in chosen if ask is not None)


def _ask_rule(path: str, ask: AskSettings, unread: bool) -> AskRule:
    tests = tuple(compiled(each.patterns) for each in ask.only_if or ())
    is_always, by_person = ask.when == "always", ask.by == "person"
    return AskRule(path, always=is_always, by_person=by_person, unread_only=unread, tests=tests)


def hints_of(entry: Entry) -> dict[str, bool]:
    """The hints that count, by their MCP names."""
    hints = entry.hints.claims.hints()
    values = {"read_only": entry.is_read_only, "destructive": hints.destructive, "idempotent": hints.idempotent}
    return {HINTS[name]: value for name, value in {**values, "open_world": hints.open_world}.items()}


class _Conditions(QuickStep):
    """The conditions of one tool. A call that they let pass needs no task."""

    __slots__ = ("_facts", "_gates", "_judges")

    def __init__(self, judges: Sequence[Judge], facts: Callable[[Call], Facts], gates: Gates) -> None:
        self._judges = judges
        self._facts = facts
        self._gates = gates

    def refusal(self, call: Call) -> tuple[str, str] | None:
        return ruling(self._judges, self._facts(call))

    async def __call__(self, call: Call, channel: CallChannel, handler: CallHandler) -> Completed:
        refusal = self.refusal(call)
        if refusal is None:
            return await handler(call, channel)
        rule, reason = refusal
        self._gates.note(call, "conditions", "denied", rule)
        return Completed.of(f"{exported_name(call)} was not called: {reason}", is_error=True)

    def before(self, sender: Sender) -> Sender:
        return _Judged(self, sender)


class _Judged:
    """A sender behind conditions; a refused call is answered in its task."""

    def __init__(self, conditions: _Conditions, sender: Sender) -> None:
        self._conditions = conditions
        self._sender = sender

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        return None if self._conditions.refusal(call) is not None else self._sender.begin(call, channel)

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        return await self._conditions(call, channel, self._sender.call)


class HubGates:
    """The gates of a hub. `asking` has the calls that wait for a yes."""

    def __init__(self, hub: HubPort, current: Current, upstreams: Mapping[str, Upstream]) -> None:
        self._hub = hub
        self._current = current
        self._upstreams = upstreams
        self._gates = hub.starter.gates
        self._settings = current.settings
        self._links = _AskLinks()
        self.asking = Asking(
            self._gates, lambda: current.settings.hub.limits.question_timeout, self._definition, self._links.notify,
            is_offered=lambda call: self._entry(call) is not None, admits=self._admits,
        )  # fmt: skip

    def use(self, settings: Settings) -> None:
        """Applies these settings from the next call on."""
        self._settings = settings
        self._gates.install("conditions", self._conditions if has_conditions(settings) else None)
        self._gates.install("ask", self._ask if has_asks(settings) else None)
        self._links.use(settings.hub.ask_webhook, settings.hub.http.public_url or "")

    async def run(self) -> None:
        """Sends links until cancelled."""
        await self._links.run()

    def _conditions(self, server: str, tool: str, profile: str | None) -> Step | None:
        judges = judges_of(self._settings, server, tool)
        return _Conditions(judges, self._facts, self._gates) if judges else None

    def _ask(self, server: str, tool: str, profile: str | None) -> Step | None:
        rules = ask_rules_of(self._settings, server, tool, self._profiles(profile))

        def rule_for(call: Call) -> AskRule | None:
            entry = self._entry(call) if any(rule.unread_only for rule in rules) else None
            return strictest(rules, self._facts(call), is_read_only=entry is not None and entry.is_read_only)

        return self.asking.step(rule_for) if rules else None

    def _profiles(self, profile: str | None) -> list[str]:
        """The profiles that hold for a caller: in a project its own, and that of the project."""
        view = None if profile is None else self._current.projects.get(profile)
        names = [profile] if view is None else [view.profile, view.overlay.profile]
        return [name for name in names if name is not None]

    def _admits(self, call: Call) -> bool:
        """Whether a token of the caller is configured for its profile, or the issuer of its tokens."""
        hub, profiles = self._current.settings.hub, self._profiles(call.profile)
        issuers = () if hub.http.oauth is None else hub.http.oauth.issuers
        return any(
            token.principal == call.principal and token.profile in (None, *profiles) for token in hub.tokens
        ) or any(call.principal.startswith(f"{issuer.issuer}#") for issuer in issuers)

    def _facts(self, call: Call) -> Facts:
        def hints() -> Mapping[str, bool] | None:
            entry = self._entry(call)
            return None if entry is None else hints_of(entry)

        return facts_of(
            call.params.get("arguments", b"{}"), call.principal, call.client_name, claims=call.claims, hints=hints
        )

    def _entry(self, call: Call) -> Entry | None:
        try:
            view = self._hub.catalog.view(call.profile, caller_lists(self._upstreams, call))
        except KeyError:  # of a project that this hub has not seen
            return None
        entry = view.find(Kind.TOOL, exported_name(call))
        is_it = entry is not None and (entry.server, entry.key) == (call.upstream, own_name(call))
        return entry if is_it else None

    def _definition(self, call: Call) -> str:
        upstream = self._upstreams.get(call.upstream)
        if upstream is None:
            return ""
        apart = upstream.apart(call)
        snapshot = upstream.snapshot() if apart is None or apart.lists is None else apart.lists
        return tool_hash(snapshot, own_name(call))


# -- links by a webhook

_MOST: Final = 256
"""Messages that wait to be sent."""
_AT_ONCE: Final = 4
_PAUSES: Final = (2.0, 8.0, 30.0, 120.0, 600.0)
"""Seconds after each failure; the last one from then on, until the question's deadline."""
_SECONDS: Final = 10.0
"""For one message."""
_TEXT: Final = 300
_PLACES: Final = re.compile(r"\{\{\s*([a-z]+)\s*\}\}")
_WHOLE: Final[dict[str, JsonValue]] = {
    name: f"{{{{{name}}}}}" for name in ("text", "link", "server", "tool", "principal")
}


class _Message(msgspec.Struct):
    pending: PendingAsk
    due: float
    failures: int = 0


class _AskLinks:
    """Sends links to open questions to the webhook, one message each; failed ones again."""

    def __init__(self) -> None:
        self._webhook: AskWebhookSettings | None = None
        self._public_url = ""
        self._messages: dict[CallId, _Message] = {}
        self._bell = Bell()

    def use(self, webhook: AskWebhookSettings | None, public_url: str) -> None:
        """Sends there from now on; None: nowhere."""
        self._webhook, self._public_url = webhook, public_url
        if webhook is None:
            self._messages.clear()

    def notify(self, pending: PendingAsk) -> bool:
        if self._webhook is None:
            return False
        if pending.call.id not in self._messages and len(self._messages) < _MOST:
            self._messages[pending.call.id] = _Message(pending, wall_time())
            self._bell.ring()
        return True

    async def run(self) -> None:
        """Sends until cancelled."""
        async with anyio.create_task_group() as tasks:
            limiter = anyio.CapacityLimiter(_AT_ONCE)
            while True:
                time = wall_time()
                for id_, message in list(self._messages.items()):
                    if message.pending.answered.is_set() or message.pending.expires <= time:
                        del self._messages[id_]
                    elif message.due <= time:
                        message.due = time + _SECONDS * 2 + _PAUSES[-1]  # until the outcome says
                        tasks.start_soon(self._sent, message, limiter)
                soonest = min((message.due for message in self._messages.values()), default=None)
                await self._bell.wait(None if soonest is None else max(soonest - wall_time(), 0.05))

    async def _sent(self, message: _Message, limiter: anyio.CapacityLimiter) -> None:
        webhook, pending = self._webhook, message.pending
        if webhook is None:
            return
        async with limiter:
            problem = await _post(webhook, pending, f"{self._public_url.rstrip('/')}/ask#{pending.ticket}")
        receiver = origin(webhook.url.get_secret_value())
        if problem is None:
            self._messages.pop(pending.call.id, None)
            log.info("ask_sent", call_id=pending.call.id, to=receiver)
            pending.sent()
            return
        log.warning("ask_not_sent", call_id=pending.call.id, to=receiver, reason=problem, failures=message.failures + 1)
        message.due = wall_time() + _PAUSES[min(message.failures, len(_PAUSES) - 1)]
        message.failures += 1
        self._bell.ring()


async def _post(webhook: AskWebhookSettings, pending: PendingAsk, link: str) -> str | None:
    """Sends one message; the reason if it was not taken."""
    url, body, kind = webhook.url.get_secret_value(), *message_of(webhook, pending, link)
    try:
        headers = {name: value.get_secret_value() for name, value in webhook.headers.items()}
        headers |= {"content-type": kind, "user-agent": USER_AGENT, "accept-encoding": "identity"}
        headers |= signed(webhook.secret.get_secret_value(), pending.call.id, body, wall_time())
        with anyio.fail_after(_SECONDS):
            request = httpx2.Request("POST", url, headers=headers, content=body)
            async with _transport(url) as transport:
                response = await _answer(transport, request, webhook.private)
    except (OSError, TimeoutError, ValueError, ImportError, httpx2.HTTPError, httpx2.InvalidURL) as exc:
        return hide_head(bad_proxy(url, exc) if isinstance(exc, ImportError) else reason_of(exc), _TEXT)
    if response.is_redirect:
        return f"it answers with a redirect ({response.status_code}), which is not followed"
    return None if response.is_success else f"it answers with HTTP {response.status_code}"


def _transport(url: str) -> httpx2.AsyncHTTPTransport:
    via = proxy(url)
    return (
        httpx2.AsyncHTTPTransport(verify=tls()) if via is None else httpx2.AsyncHTTPTransport(verify=tls(), proxy=via)
    )


async def _answer(transport: httpx2.AsyncHTTPTransport, request: httpx2.Request, private: list[str]) -> httpx2.Response:
    """The head of an answer, from an allowed address. A proxy resolves names itself. Raises `ValueError`."""
    host = normal_host(request.url.host) or normal_host(f"[{request.url.host}]") or ""
    if proxy(str(request.url)) is None:
        addresses = await resolved(host)
        problems = [refused_target(address, host, private) for address in addresses]
        allowed = [address for address, problem in zip(addresses, problems, strict=True) if problem is None]
        if not allowed:
            raise ValueError(f"its host is refused: {problems[0]}")
        request = pinned(request, str(allowed[0]))
    elif (address := address_of(host)) is not None and (problem := refused_target(address, host, private)) is not None:
        raise ValueError(f"its host is refused: {problem}")
    response = await transport.handle_async_request(request)
    await response.aclose()  # nothing of the body is read
    return response


def signed(secret: str, id_: str, body: bytes, at: float) -> dict[str, str]:
    """The headers of a signed message (standardwebhooks.com, "Signature scheme")."""
    text = b"%s.%d.%s" % (id_.encode(), int(at), body)
    signature = base64.b64encode(hmac.new(webhook_key(secret), text, hashlib.sha256).digest()).decode()
    return {"webhook-id": id_, "webhook-timestamp": str(int(at)), "webhook-signature": f"v1,{signature}"}


def message_of(webhook: AskWebhookSettings, pending: PendingAsk, link: str) -> tuple[bytes, str]:
    """The body and its media type."""
    server, tool = (shown(hide_head(text, _TEXT)) for text in (pending.call.upstream, pending.tool))
    values = {
        "link": link, "server": server, "tool": tool, "principal": shown(hide_head(pending.call.principal, _TEXT)),
        "arguments": pending.arguments if webhook.arguments == "full" else "",
        "expires": datetime.fromtimestamp(pending.expires, UTC).isoformat(timespec="seconds"),
    }  # fmt: skip
    with_arguments = f" with {values['arguments']}" if values["arguments"] else ""
    values["text"] = f"Call {tool} of {server}{with_arguments}? Asked for {values['principal']}."
    if isinstance(webhook.body, str):
        return _filled(webhook.body, values).encode("utf-8", "replace"), "text/plain; charset=utf-8"
    more: dict[str, JsonValue] = {"arguments": "{{arguments}}"} if values["arguments"] else {}
    body: JsonValue = {**_WHOLE, **more} if webhook.body is None else webhook.body
    return msgspec.json.encode(_filled_within(body, values)), "application/json"


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACES.sub(lambda match: values.get(match[1], match[0]), text)


def _filled_within(value: JsonValue, values: Mapping[str, str]) -> JsonValue:
    match value:
        case str():
            return _filled(value, values)
        case dict():
            return {name: _filled_within(each, values) for name, each in value.items()}
        case list():
            return [_filled_within(each, values) for each in value]
        case _:
            return value
