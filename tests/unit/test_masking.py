"""What is blacked out of what the hub says, and what is not."""

import hashlib
import json
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote

import msgspec
import pytest

from mcp_hub import masking
from mcp_hub.errors import RpcError, UpstreamUnavailable
from mcp_hub.masking import MASK, Mask, hide, hide_head, hide_part, hide_tail

ODD = 'pa"ss\\w ö/rd?'


def test_a_secret_is_blacked_out_wherever_it_stands_and_in_every_spelling() -> None:
    mask = Mask({"s3cret-one", "two-s3cret"})
    assert mask("a s3cret-one, s3cret-onetwo-s3cret.") == f"a {MASK}, {MASK}{MASK}."
    assert mask("s3cret one") == "s3cret one"
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n9w0BAQEFAASCBKcwggSj\nshort\n-----END KEY-----\n"
    assert Mask([key])("key: 9w0BAQEFAASCBKcwggSj, shortly") == f"key: {MASK}, shortly"
    assert Mask([key])(key) == MASK
    mask, data = Mask(["s3cret-key"]), b"s3cret-key"
    assert mask(f"<{data.hex()}> <{data.hex().upper()}>") == "<***> <***>"
    assert Mask(["short"])(b"short".hex()) == b"short".hex()
    # With two kinds of quotes and what is not printable, unlike JSON and URLs.
    secret = "pass'word\"s \x1b12"
    for shown in (repr(secret), repr({"key": secret}), str(ValueError(secret)), f"{ValueError(secret)!r}"):
        masked = Mask({secret})(shown)
        assert MASK in masked and "pass" not in masked and "word" not in masked and "12" not in masked
    assert Mask({"pass", "pass/word"})(r"pass%2Fword pass\/word pass") == f"{MASK} {MASK} {MASK}"


@pytest.mark.parametrize(
    "shown",
    [
        ODD,
        json.dumps({"key": ODD}),
        json.dumps({"key": ODD}, ensure_ascii=False),
        msgspec.json.encode({"key": ODD}).decode(),
        repr(["x", ODD]),
        f"https://x/y?key={quote(ODD, safe='')}",
    ],
)
def test_a_secret_is_blacked_out_as_others_write_it(shown: str) -> None:
    masked = Mask({ODD})(shown)
    assert MASK in masked and "ss" not in masked and "rd" not in masked


SLASHED = "p@ss!w(o)/rd12"
ACCENTED = "kzRé(44'4)!/~rest"
SPACED = 'aß 😀/b "c'
LINES = 'say "hi"\tto\nme\r'


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        (SLASHED, "p%40ss!w(o)%2Frd12"),
        (SLASHED, "p%40ss!w(o)%2frd12"),
        (SLASHED, r"p@ss!w(o)\/rd12"),
        (SLASHED, "p%40ss%21w%28o%29/rd12"),
        (SLASHED, "".join(f"%{ord(char):02x}" for char in SLASHED)),
        (SLASHED, r"p\u0040ss!w(o)\u002Frd12"),
        (ACCENTED, "kzR%C3%A9(44'4)!/~rest"),
        (ACCENTED, "kzR%c3%a9%2844%274%29%21/%7Erest"),
        (ACCENTED, r"kzR\u00e9(44'4)!\/~rest"),
        (SPACED, "a%C3%9F+%F0%9F%98%80/b+%22c"),
        (SPACED, 'aß%20😀%2Fb%20"c'),
        (SPACED, r"a\u00DF \ud83D\uDE00\/b \"c"),
        (LINES, 'say \\"hi\\"\tto\nme\r'),
        (LINES, 'say "hi"\\tto\nme\r'),
        (LINES, 'say "hi"\tto\\nme\r'),
        (LINES, 'say "hi"\tto\nme\\r'),
        ("a b+c d", "a+b+c+d"),
        ("ab%41é/cd", "ab%41%C3%A9/cd"),
        ("ab%41é/cd", "ab%2541%C3%A9/cd"),
    ],
)
def test_a_secret_is_blacked_out_whichever_of_its_characters_are_escaped(secret: str, shown: str) -> None:
    assert Mask({secret})(shown) == MASK
    assert Mask({secret})(f"%41 é /mcp?a=%22{shown}%22&b=\\n {shown} {secret}") == (
        f"%41 é /mcp?a=%22{MASK}%22&b=\\n {MASK} {MASK}"
    )
    assert len(shown) <= Mask({secret}).longest


@pytest.mark.parametrize("secret", ["s3cret-k", "s3cret-key", "s3cret-ke", "p\u00e4ss??>>word~~"])
@pytest.mark.parametrize("before", ["", "u", "us", "use", "user:"])
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
def test_a_secret_is_blacked_out_within_base64(secret: str, before: str, encode: Callable[[bytes], bytes]) -> None:
    for behind in ("", "x", "xy", " and more"):
        shown = Mask([secret])(f"auth {encode(f'{before}{secret}{behind}'.encode()).decode()}.")
        left = shown.removeprefix("auth ").removesuffix(".").replace(MASK, "", 1)
        assert MASK in shown and len(left.rstrip("=")) <= (len(before) + len(behind)) * 4 / 3 + 4, (
            "bits of its neighbours"
        )


def test_text_without_a_secret_or_with_a_short_one_stays_as_it_is() -> None:
    text = r"C:\new\u12 %41%zz%C3%28%C3 100% a+b \ud83d \\ \/ %"
    assert Mask({SLASHED, "wxyz"})(text) == text
    assert Mask({SLASHED, "wxyz"})('{\\"a\\": \\"b\\n\\"}') == '{\\"a\\": \\"b\\n\\"}'
    assert Mask({"", "a", "abc"})("abc, a") == "abc, a"


@pytest.mark.parametrize(
    "text",
    [
        "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.abcDEF-_123 there",
        "header authorization: Bearer abcdefghij0123456789 there",
        "BEARER  abcdefghij0123456789 there",
    ],
)
def test_an_unknown_token_is_masked_by_its_shape(text: str) -> None:
    masked = hide(text)
    assert MASK in masked and masked.endswith(" there") and "abc" not in masked and "eyJ" not in masked


@pytest.mark.parametrize("text", ["a valid bearer token is required", "Bearer", "eyJ", "a.b.c", ""])
def test_words_about_tokens_stay(text: str) -> None:
    assert hide(text) == text


def test_what_was_learned_is_known_until_it_is_forgotten() -> None:
    masking.learn(["first-secret"])
    masking.learn(["second-secret", "first-secret"])
    assert hide("first-secret second-secret") == f"{MASK} {MASK}"
    masking.forget()
    assert hide("first-secret") == "first-secret"


def test_the_oldest_secrets_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masking, "_MOST", 3)
    for number in range(5):
        masking.learn([f"secret-{number}"])
    assert [hide(f"secret-{number}") for number in range(5)] == ["secret-0", "secret-1", MASK, MASK, MASK]


def test_error_of_the_hub_holds_no_secret_and_that_of_an_upstream_is_relayed_as_it_is() -> None:
    masking.learn(["s3cret-one", "1001"])
    error = UpstreamUnavailable("failed: s3cret-one", data={"upstream": {"reason": ["s3cret-one"], "code": 1001}})
    said = msgspec.json.decode(error.encoded())
    assert str(error) == f"failed: {MASK}"
    data = {"code": "upstream_unavailable", "upstream": {"reason": [MASK], "code": 1001}}
    assert said == {"code": 1001, "message": f"failed: {MASK}", "data": data}
    masking.learn(["s3cret-one"])
    raw = b'{"code":-32000,"message":"s3cret-one"}'
    assert RpcError("s3cret-one", raw=raw).encoded() == raw


@pytest.mark.parametrize(
    "part",
    ["eyJ", "eyJ.", "bearer ", "a.", "s3cret-on", " ", "%", "%41", "%e2%82", "%73", "\\", "\\u0073", "s%33cret-on"],
)
def test_no_text_of_a_server_takes_long(part: str) -> None:
    """A hang guard: what is quadratic takes minutes for this."""
    masking.learn([f"s3cret-{number:04}" for number in range(200)])
    started = time.process_time()  # of this process: other ones may keep the machine busy
    text = part * (8_000_000 // len(part))
    assert len(hide(text)) < 300_000
    assert time.process_time() - started < 5


@pytest.mark.slow
def test_many_secrets_do_not_make_a_text_take_long() -> None:
    """A hang guard: a text that is compared with each secret at each place takes minutes for this."""
    masking.learn([b64encode(hashlib.sha256(b"%d" % number).digest()).decode() for number in range(500)])
    text = "connection refused to https://db.example " * 6000
    started = time.process_time()
    assert hide(text) == text
    assert time.process_time() - started < 5


@pytest.mark.parametrize("before", [0, 10, 1000])
def test_the_head_of_a_text_holds_no_half_of_a_secret(before: int) -> None:
    secrets = [f"{number:03}" + "s3cret" * 30 for number in range(60)]
    masking.learn(secrets)
    head = hide_head(("x" * before + "".join(secrets)).encode(), 100)
    assert head.startswith("x" * min(before, 100)) and "s3" not in head and len(head) <= 100
    assert hide_head(b"plain text", 100) == "plain text" and hide_head(b"plain " * 10_000, 5) == "plain"


def test_a_text_without_end_is_cut_and_its_tokens_are_masked() -> None:
    masking.learn(["s3cret-one"])
    cut = hide("s3cret-one " * 100_000)
    assert cut.endswith("… (1100000 characters)") and "s3cret" not in cut
    jwt = f"eyJhbGciOiJIUzI1NiJ9.{'eyJzdWIi' * 100_000}.abc"
    for head in (hide_head(jwt.encode(), 100), hide_head(jwt, 100), hide(jwt)):
        assert "eyJ" not in head and MASK in head


CUTS = [
    "s3cret-one-0123456789",
    ODD * 2,
    quote(ODD * 2, safe=""),
    json.dumps(ODD * 2)[1:-1],
    ascii(ODD * 2 + "'")[1:-1],
    b64encode(b"user:s3cret-one-0123456789").decode(),
    b"s3cret-one-0123456789".hex(),
    f"eyJ{'a' * 500}.{'b' * 3000}.{'c' * 40}",
    f"Bearer {'d' * 3000}",
]
SECRETS = ["s3cret-one-0123456789", ODD * 2, ODD * 2 + "'"]


@pytest.mark.parametrize("spelling", CUTS, ids=lambda text: text[:12])
@pytest.mark.parametrize("limit", [1, 20, 40])
def test_a_cut_at_any_place_shows_no_piece_of_a_secret(spelling: str, limit: int) -> None:
    """As long as the text is masked as a whole, a part of it is a part of that: at each place of the cut."""
    masking.learn(SECRETS)
    places = range(-limit, min(len(spelling), 64) + limit)
    for place in places:
        before, behind = "x " * max(0, limit - place), " y" * 300
        text = f"{before}{spelling}{behind}"
        masked = hide(text)
        head = hide_head(text, limit)
        assert masked.startswith(head) and head == hide_head(text.encode(), limit), place
        assert head == masked[:limit] or len(spelling) > 500, "an unknown token may use up what is looked at"
        assert hide_tail(text[: len(before) + len(spelling)], limit) in masked, place
        assert masked.endswith(hide_tail(text, len(behind) + limit)), place
        part = hide_part(text, len(before) + place, len(text))
        assert part.removeprefix(MASK) in masked and not any(piece in part for piece in pieces(spelling)), place


def pieces(spelling: str) -> list[str]:
    return [spelling[at : at + 5] for at in range(len("Bearer "), len(spelling) - 5)]


def test_cut_has_a_mark_within_the_limit_and_masks_a_long_secret_first() -> None:
    assert hide_head("abcdef", 6, "…") == "abcdef" and hide_head("abcdefg", 6, "…") == "abcde…"
    assert hide_tail("abcdef", 6, "…") == "abcdef" and hide_tail("abcdefg", 6, "…") == "…cdefg"
    assert hide_head(b"abcdefg", 0, "…") == "…" and hide_head("", 5, "…") == "" and hide_tail("", 5, "…") == ""
    secret = "long-s3cret " * 1000
    masking.learn([secret])
    assert hide_head(f"a {secret}!", 10) == f"a {MASK}!" == hide_tail(f"a {secret}!", 10)
    assert hide_head(f"{secret}, {'b' * 1000}", 10) == f"{MASK}, bbbbb"
    assert hide(f"{'x' * ((1 << 18) - 50)}{secret}").count("s3cret") == 0


NESTED = {
    "json in repr": lambda text: repr(json.dumps(text)),
    "json in json": lambda text: json.dumps(json.dumps(text)),
    "json in json in json": lambda text: json.dumps(json.dumps(json.dumps(text))),
    "json in ascii": lambda text: ascii({"a": json.dumps(text, ensure_ascii=False)}),
    "repr of bytes": lambda text: repr(text.encode()),
    "URL in URL": lambda text: quote(quote(text, safe=""), safe=""),
    "URL in JSON": lambda text: json.dumps(quote(text)).replace("/", "\\/"),
    "every character": lambda text: "".join(f"\\x{ord(char):02X}" if char < "Ā" else char for char in text),
    "long escapes": lambda text: "".join(f"\\U{ord(char):08x}" for char in text),
}


@pytest.mark.parametrize("spelling", NESTED.values(), ids=NESTED)
@pytest.mark.parametrize("secret", [ODD, 'it\'s "x"\\é', ACCENTED, "\u20ac p\tq\\\\r"])
def test_a_secret_is_masked_behind_two_layers_of_escapes(secret: str, spelling: Callable[[str], str]) -> None:
    text = f"no {spelling(secret)} there"
    masked = Mask({secret})(text)
    assert MASK in masked and len(masked) <= len("no {'a': '\"***\"'} there") + 4, masked
    assert len(spelling(secret)) <= Mask({secret}).longest + 16


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ghp_" + "a1B2" * 9, "***"),
        ("token=sk-proj-" + "a1B2" * 9, "token=***"),
        (r"first line\nAKIAIOSFODNN7EXAMPLE", r"first line\n***"),
        ("next=%2Fghp_" + "a1B2" * 9 + "&page=2", "next=%2F***&page=2"),
        ("123456789:AAabcdefghij1234567890abcdefghij12345", "***"),
        ("npm-run-all-something-long", "npm-run-all-something-long"),
        ("pypi-query-mcp-server", "pypi-query-mcp-server"),
        ("key-2024-11-28T22-00-00", "key-2024-11-28T22-00-00"),
        ("日本語の文 ghp_" + "a1B2" * 9, "日本語の文 ***"),
    ],
)
def test_tokens_of_providers_are_masked_by_their_form(text: str, expected: str) -> None:
    assert hide(text) == hide_head(text, 100) == expected


def test_what_is_shown_is_a_plain_text() -> None:
    class Marked(str):
        pass

    assert type(hide(Marked("on"))) is str and type(hide_tail(Marked("on"), 10)) is str
