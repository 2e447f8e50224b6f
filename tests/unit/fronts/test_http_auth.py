"""Who is let through: Host against DNS rebinding, Origin against foreign pages, the token against everybody else."""

import hashlib

import pytest

from mcp_hub.fronts.http.auth import HttpAuth, Refusal, is_loopback, repeated
from mcp_hub.sessions.session import LOCAL, Caller

ALICE, BOB = Caller("alice"), Caller("bob", "small")
OPEN = HttpAuth({})
CONFIGURED = HttpAuth({}, hosts=["Hub.example"], origins=["https://App.example/", "vscode-webview://x"])
LOCKED = HttpAuth({"s3cret": ALICE, "töken": BOB})


def seen(guard: HttpAuth, headers: dict[bytes, bytes]) -> Caller | Refusal | None:
    return guard.admit(headers) or guard.identify(headers)


def checked(guard: HttpAuth, **headers: str | None) -> Caller | int:
    """The caller, or the status of the refusal. The host is a good one unless said otherwise."""
    named = {"host": "127.0.0.1:8000", **headers}
    outcome = seen(guard, {k.encode(): v.encode("utf-8") for k, v in named.items() if v is not None})
    assert outcome is not None
    return outcome.status if isinstance(outcome, Refusal) else outcome


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:8000", "127.8.8.8", "[::1]", "[::1]:8000"),
        *("0.0.0.0:8000", "192.168.1.5:8000", "[fe80::1]:8000"),
    ],
)
def test_a_host_that_is_an_address_or_localhost_passes(host: str) -> None:
    assert checked(OPEN, host=host) == LOCAL


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:8000", "localhost.evil.example", "evil.localhost", "xlocalhost"),
        *("127.0.0.1.evil.example", "127.0.0.1.nip.io:8000", "127-0-0-1.evil.example", "1.2.3", "0x7f000001"),
        *("hub.example", "[evil.example]", "::1", "[::1].evil.example", "user@127.0.0.1", "127.0.0.1 evil", ":80"),
        *("127.0.0.1:18901@evil", "127.0.0.1:80:80", "127.0.0.1:", "127.0.0.1:x", "localhost:80/", "localhost:80 x"),
        *("[::1", "[::1]:", "[::1]:1@evil", "[::1]:x", "[localhost]:1", "[localhost]", "[127.0.0.1]", "[]", "[:"),
        *(
            "[::1%eth0]",
            "[[::1]]",
            "::1]",
            "localhost\n",
            "localhost:1\n",
            "localhost:" + "1" * 300,
            "localhost:\u00b2",
        ),
        "",
        None,
    ],
)
def test_any_other_host_is_misdirected(host: str | None) -> None:
    assert checked(OPEN, host=host) == 421
    assert checked(LOCKED, host=host, authorization="Bearer s3cret") == 421, "a token is no excuse"


@pytest.mark.parametrize("host", ["hub.example", "HUB.EXAMPLE:443", "localhost"])
def test_a_configured_host_passes_beside_the_usual_ones(host: str) -> None:
    assert checked(CONFIGURED, host=host) == LOCAL
    assert checked(CONFIGURED, host="sub." + host) == 421


def test_a_verdict_on_a_host_does_not_rub_off() -> None:
    for number in range(600):
        assert checked(OPEN, host=f"evil{number}.example") == 421
        assert checked(OPEN, host=f"127.0.0.1:{number}") == LOCAL
    assert checked(OPEN, host="evil599.example") == 421


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "http://localhost",
        "http://localhost:5173",
        "https://LOCALHOST",
        "http://127.0.0.1:8000",
        "http://[::1]:8000",
    ],
)
def test_no_origin_or_one_of_this_machine_passes(origin: str | None) -> None:
    assert checked(OPEN, origin=origin) == LOCAL


@pytest.mark.parametrize(
    "origin",
    [
        *("null", "", "http://evil.example", "https://localhost.evil.example", "http://127.0.0.1.evil.example"),
        *("file://", "file://localhost", "chrome-extension://abc", "ftp://localhost", "localhost", "//localhost"),
        *("http://localhost@evil.example", "http://[::1", "http://", "http://hub.example", "https://app.example"),
        *("http://evil.example\\@127.0.0.1", "http://evil.example\\@localhost:80", "http://x@localhost"),
        *("http://localhost/", "http://localhost/a", "http://localhost?a", "http://localhost#a", "http:///localhost"),
        *("http://localhost:", "http://localhost:x", "http://localhost:123456", "http://[::1]x", "http://[::1"),
        *("http://local\thost", " http://localhost", "http://localhost evil", "http:localhost", "http:\\\\localhost"),
        # that rebinding needs a name vouches for a Host, not for an Origin: a page may come from a bare address
        *("http://203.0.113.7", "http://203.0.113.7:8000", "https://[2001:db8::1]"),
    ],
)
def test_a_foreign_origin_is_forbidden(origin: str) -> None:
    assert checked(OPEN, origin=origin) == 403
    assert checked(LOCKED, origin=origin, authorization="Bearer s3cret") == 403


def test_a_page_of_the_hubs_own_passes_where_the_hub_is_reached_by_its_address() -> None:
    assert checked(OPEN, host="192.168.1.5:8000", origin="http://192.168.1.5:8000") == LOCAL


@pytest.mark.parametrize(
    ("origin", "outcome"),
    [
        *((origin, LOCAL) for origin in ("https://app.example", "HTTPS://APP.EXAMPLE/", "vscode-webview://x")),
        ("http://hub.example:3000", LOCAL),  # of a configured host
        *((origin, 403) for origin in ("http://app.example", "https://app.example:8443", "https://sub.app.example")),
        ("null", 403),
    ],
)
def test_a_configured_origin_is_scheme_name_and_port(origin: str, outcome: Caller | int) -> None:
    assert checked(CONFIGURED, origin=origin) == outcome


def test_a_page_of_cors_passes_and_may_read_and_one_that_is_only_allowed_may_not() -> None:
    guard = HttpAuth({}, origins=["https://other.example"], cors=["https://App.example"])
    assert checked(guard, origin="https://app.example") == checked(guard, origin="https://other.example") == LOCAL
    readers = [b"https://app.example", b"https://other.example", b"http://localhost", b"https://app.example.evil"]
    assert [guard.is_reader(origin) for origin in readers] == [True, False, False, False]


@pytest.mark.parametrize(
    ("header", "caller"),
    [("Bearer s3cret", ALICE), ("bearer s3cret", ALICE), ("BEARER  s3cret ", ALICE), ("Bearer töken", BOB)],
)
def test_a_token_says_who_is_asking(header: str, caller: Caller) -> None:
    assert checked(LOCKED, authorization=header) == caller


@pytest.mark.parametrize(
    "header",
    [
        *("Bearer wrong", "Bearer S3CRET", "Bearer s3cre", "Bearer s3cret2", "Bearer", "Bearer ", "", "s3cret"),
        *("Basic s3cret", "Bearers3cret", "Token s3cret", "Bearer s3cret s3cret", "Bearer s3cret,x", None),
    ],
)
def test_without_a_valid_token_nobody_passes_and_the_answer_says_how(header: str | None) -> None:
    headers = {b"host": b"localhost"} | ({b"authorization": header.encode()} if header is not None else {})
    refusal = seen(LOCKED, headers)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.headers) == (401, ((b"www-authenticate", b"Bearer"),))
    assert "s3cret" not in refusal.reason


PROFILES = HttpAuth({}, profiles=["small", "large"])


def test_caller_that_is_bound_to_no_profile_may_choose_one() -> None:
    assert PROFILES.narrowed(ALICE, "small") == Caller(ALICE.principal, "small")
    assert PROFILES.narrowed(Caller("x", "large"), "large") == Caller("x", "large")


def test_profile_of_others_looks_exactly_like_one_that_does_not_exist() -> None:
    bound = Caller("x", "large")
    foreign = PROFILES.narrowed(bound, "small")
    assert foreign == HttpAuth({}, profiles=["large"]).narrowed(bound, "small")
    assert foreign == Refusal(404, "unknown_profile", 'There is no profile "small" for you.')
    for name in ("", "smal", "Small", "none"):
        assert PROFILES.narrowed(ALICE, name) == Refusal(
            404, "unknown_profile", f'There is no profile "{name}" for you.'
        )
    unknown = PROFILES.narrowed(ALICE, "\x1b[31m" * 1000)
    assert isinstance(unknown, Refusal) and len(unknown.reason) < 1000 and unknown.reason.isprintable()


def test_a_refusal_names_what_to_allow_and_repeats_little_of_what_came() -> None:
    refusal = seen(OPEN, {b"host": b"evil.example" + b"x" * 10_000})
    assert isinstance(refusal, Refusal)
    assert "hub.http.allowed_hosts" in refusal.reason and len(refusal.reason) < 400
    refusal = seen(OPEN, {b"host": b"localhost", b"origin": b"\xff\xfe" * 1000})
    assert isinstance(refusal, Refusal)
    assert "hub.http.allowed_origins" in refusal.reason and len(refusal.reason) < 400


@pytest.mark.parametrize(
    ("host", "is_here"),
    [
        *((host, True) for host in ("localhost", "LocalHost", "127.0.0.1", "127.1.2.3", "::1", "[::1]")),
        *((host, False) for host in ("0.0.0.0", "::", "192.168.1.5", "hub.example", "", "localhost.evil.example")),
    ],
)
def test_loopback_is_this_machine_only(host: str, is_here: bool) -> None:
    assert is_loopback(host) is is_here


def test_without_tokens_everybody_is_the_default_whatever_they_show() -> None:
    small = HttpAuth({}, default=Caller(profile="small"))
    assert checked(small) == checked(small, authorization="Bearer anything") == Caller("local", "small")


class Known:
    """A verifier that knows one token and would have to check any other."""

    def can_verify(self, token: bytes) -> bool:
        return token.count(b".") == 2

    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def find(self, digest: bytes) -> Caller | None:
        return Caller("issuer#carol") if digest == hashlib.sha256(b"a.known.token").digest() else None

    def challenge(self, *, has_token: bool) -> bytes:
        return b"Bearer error" if has_token else b"Bearer where"

    async def verify(self, token: bytes, digest: bytes) -> Caller | Refusal:
        self.asked.append(token)
        return Refusal(401, "token_invalid", "no")


def challenged(guard: HttpAuth, authorization: bytes | None) -> tuple[int, bytes]:
    headers = {b"host": b"localhost"} | ({} if authorization is None else {b"authorization": authorization})
    refusal = seen(guard, headers)
    assert isinstance(refusal, Refusal)
    return refusal.status, dict(refusal.headers)[b"www-authenticate"]


def test_access_tokens_are_taken_beside_those_of_the_configuration() -> None:
    guard = HttpAuth({"s3cret": ALICE}, verifier=Known())
    assert checked(guard, authorization="Bearer s3cret") == ALICE
    assert checked(guard, authorization="Bearer a.known.token") == Caller("issuer#carol")
    assert seen(guard, {b"host": b"localhost", b"authorization": b"Bearer an.unknown.one"}) is None


def test_with_a_verifier_alone_nobody_comes_in_without_a_token() -> None:
    guard = HttpAuth({}, verifier=Known())
    assert challenged(guard, None) == (401, b"Bearer where")
    assert challenged(guard, b"Basic YTpi") == (401, b"Bearer where")
    assert challenged(guard, b"Bearer ") == (401, b"Bearer where")
    assert challenged(guard, b"Bearer opaque") == (401, b"Bearer error"), "no JWT: nobody is asked"
    assert challenged(guard, b"Bearer a.b.c.d.e") == (401, b"Bearer error"), "an encrypted one neither"


async def test_what_nobody_checks_is_refused() -> None:
    refusal = await HttpAuth({"s3cret": ALICE}).verified({b"authorization": b"Bearer a.b.c"})
    assert isinstance(refusal, Refusal) and refusal.status == 401


def test_a_guard_holds_digests_of_tokens_and_not_the_tokens() -> None:
    """A digest is looked up: how long that takes says nothing about the token, and a dump of memory no token."""
    guard = HttpAuth({"s3cret-of-alice": ALICE})
    assert "s3cret" not in repr(vars(guard))
    assert list(guard._callers) == [hashlib.sha256(b"s3cret-of-alice").digest()]


@pytest.mark.parametrize("name", [b"host", b"origin", b"authorization"])
def test_a_header_that_decides_may_be_given_once(name: bytes) -> None:
    usual = [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"authorization", b"Bearer x"), (b"a", b"b")]
    assert repeated([*usual, (b"a", b"c")]) is None
    refusal = repeated([*usual, (name, b"evil")])
    assert refusal == Refusal(400, "repeated_header", f"{name.decode()} is given more than once")
