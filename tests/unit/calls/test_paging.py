"""Pages, patterns and paths over a kept text."""

import itertools
import json
from collections.abc import Callable

import pytest

from mcp_hub.calls.results.paging import MARGIN, Matches, grep, page
from mcp_hub.errors import InvalidParams
from mcp_hub.selection.engine import select
from tests.unit.calls.long_results import lines_of, quarter


def never() -> bool:
    return False


def after(looks: int) -> Callable[[], bool]:
    """The time is over when it is looked at for that many times."""
    seen = itertools.count(1)
    return lambda: next(seen) > looks


def searched(text: str, pattern: str, start: int = 0, most: int = 50, tokens: int = 8000) -> Matches:
    return grep(text.encode(), pattern, start, most, tokens, quarter, never)


def test_a_page_ends_at_a_line_border_and_the_next_begins_there() -> None:
    body = lines_of(100_000).encode()
    first, _, end = page(body, 0, 0, None, 1000, quarter)
    assert first.endswith("\n") and 900 < quarter(first) <= 1000 and end == len(first)
    second, *_ = page(body, 0, end, None, 1000, quarter)
    assert body.decode().startswith(first + second)


def test_an_offset_within_a_character_reads_from_its_start() -> None:
    body = "aé🐎b".encode()
    starts = [page(body[max(at - MARGIN, 0) :], max(at - MARGIN, 0), at, None, 100, quarter)[1] for at in range(9)]
    assert starts == [0, 1, 1, 3, 3, 3, 3, 7, 8]


def test_a_limit_is_in_bytes_and_lets_one_character_through_at_least() -> None:
    body = "aé🐎b".encode()
    assert [page(body, 0, 0, most, 100, quarter)[0] for most in (1, 2, 3, 6, 7, 99)] == [
        *("a", "a", "aé", "aé", "aé🐎", "aé🐎b")
    ]
    assert page(body, 0, 3, 1, 100, quarter)[0] == "🐎"


def test_matching_lines_come_with_number_and_offset() -> None:
    found = searched("one\ntwo\nthree\r\ntwo again\n", "^two|thre+")
    assert found == (("2:4: two", "3:8: three\r", "4:15: two again"), None, False)


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        ("^$", ["2:2: "]),
        ("(?i)A", ["1:0: a"]),
        ("a\\s+b", []),
        ("[^x]b", []),
        ("(?s)a.*b", []),
        ("é.ü$", ["4:5: éäü"]),
        ("\\bb\\b", ["3:3: b"]),
        ("x*", ["1:0: a", "2:2: ", "3:3: b", "4:5: éäü"]),
    ],
)
def test_a_pattern_is_matched_line_by_line(pattern: str, lines: list[str]) -> None:
    assert list(searched("a\n\nb\néäü\n", pattern)[0]) == lines


def test_of_a_long_line_what_is_around_each_match_is_shown() -> None:
    text = "é" * 500_000 + "needle" + "ü" * 500_000 + "needle" + "z" * 10 + "\nend"
    found = searched(text, "needle")
    offsets = [int(line.split(":")[1]) for line in found[0]]
    assert len(offsets) == 2 and all(line.count("…") == 2 - index for index, line in enumerate(found[0]))
    for line, offset in zip(found[0], offsets, strict=True):
        shown = line.split(": ", 1)[1].strip("…")
        assert "needle" in shown and text.encode()[offset:].startswith(shown.encode()) and len(shown.encode()) <= 400


def test_a_line_ends_where_it_ends_and_not_where_the_search_pauses() -> None:
    assert searched("a" * 1_000_000 + "b", "a$")[0] == ()
    assert searched("a" * 1_000_000 + "b", "ab$")[0] != ()
    for at in (131_072 - 3, 131_072 - 7, 131_072, 131_072 - 4096, 131_072 - 4099):
        text = "x" * at + "needle" + "x" * 500_000
        assert len(searched(text, "n.edle")[0]) == 1


def test_hidden_text_can_be_searched_for_from_the_place_that_is_named() -> None:
    text = lines_of(50_000)
    lines: list[str] = []
    at: int | None = 0
    while at is not None:
        found = searched(text, "7 the", at, most=7)
        assert len(found[0]) <= 7
        lines += found[0]
        at = found[1]
    assert [line.split(": ", 1)[1] for line in lines] == [line for line in text.split("\n") if "7 the" in line]


def test_matches_are_within_the_tokens() -> None:
    found = searched(lines_of(500_000), "fox", most=99, tokens=1000)
    assert 800 < sum(map(quarter, found[0])) <= 1000 and found[1] is not None


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a*)*b", "a?" * 200 + "a" * 200, "(.*)(.*)(.*)(.*)(.*)x"])
def test_patterns_that_backtrack_elsewhere_are_harmless(pattern: str) -> None:
    looks = after(200)  # each a window of 128 KiB at most: never reached
    found = grep(b"a" * 3_000_000 + b"!", pattern, 0, 5, 8000, quarter, looks)
    assert not found[2]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(a", "missing ): (a"),
        ("a{2000}", "invalid repetition size: {2000}"),
        ("(?=x)", "invalid perl operator: (?="),
        ("(a)\\1", "invalid escape sequence: \\1"),
        ("\\pL{900}", "too large"),
        ("(?:[01]{120}|1[01]*){8}x(?:ab){99}", "too large a pattern"),
        ("9{2,999}" * 100, "too large a pattern"),  # which RE2 would look at for five seconds
        (r"\\{999}" * 99, "too large a pattern"),
        ("x" * 1001, "1001 characters; 1000 are allowed"),
    ],
)
def test_a_pattern_that_is_none_is_named_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        searched("text", pattern)
    assert str(refused.value).startswith("grep: ") and reason in str(refused.value)
    assert len(pattern) > 100 or repr(pattern) in str(refused.value)


def test_a_search_that_takes_too_long_tells_how_far_it_came() -> None:
    text = lines_of(1_000_000)
    found = grep(text.encode(), "nowhere", 0, 5, 8000, quarter, after(3))
    assert found[2] and found[0] == () and found[1] is not None and 0 < found[1] < len(text)


TEXT = json.dumps({"items": [{"n": n, "s": f"é{n}", "f": 1.5} for n in range(20)], "big": 12345678901234567890123})


def chosen(path: str, text: str = TEXT) -> list[str]:
    found = select(text.encode(), path, never)
    lines = [value.decode() for value in found.values]
    return lines


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$.items[3].s", ['"é3"']),
        ("$.items[18:].n", ["18", "19"]),
        ("$['big']", ["12345678901234567890123"]),
        ("$..n", [str(n) for n in range(20)]),
        ("$.items[?@.n > 17 && @.s != 'x'].f", ["1.5", "1.5"]),
        ("$.items[?length(@.s) == 3].n", [str(n) for n in range(10, 20)]),
        (" $.items[-1].n ", ["19"]),
        ("$.items[?@.n == $.items[7].n].n", ["7"]),
        ("$.items[?match(@.s, 'é1.')].n", [str(n) for n in range(10, 20)]),
        ("$.items[?match(@.s, '1')].n", []),
        ("$.items[?match(@.s, 'é1|é2')].n", ["1", "2"]),
        ("$.items[?match(@.s, '^é1$')].n", ["1"]),
        ("$.items[?" + " || ".join(["match(@.s, 'é1|a{900}')"] * 3) + "].n", ["1"]),
        ("$.items[?search(@.s, '1$')].n", ["1", "11"]),
        ("$.items[?!search(@.s, '[0-8]')].n", ["9"]),
        ("$.items[?search(@.n, '1') || match(@.none, '.*')].n", []),
        ("$.items[?match($.items[3].s, @.s)].n", ["3"]),
        ("$.items[?search(@.s, '(x+x+)+y')].n", []),
        ("$.nothing", []),
    ],
)
def test_a_path_selects_values_each_on_a_line(path: str, values: list[str]) -> None:
    assert chosen(path) == values


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$[?@.id==1234567890123456783].n", [3]),
        ("$[?@.id>1234567890123456788].n", [9]),
        ("$[?@.id==-1234567890123456781].n", []),
        ("$[?@.id!=1234567890123456783 && @.n<5].n", [0, 1, 2, 4]),
        ("$[?@.n==1e0].n", [1]),
        ("$[?@.n==0].id", [1234567890123456780]),
    ],
)
def test_whole_numbers_are_exact_however_long(path: str, found: list[int]) -> None:
    rows = ",".join(f'{{"id":{1234567890123456780 + n},"n":{n}}}' for n in range(10))
    assert select(f"[{rows}]".encode(), path, lambda: False).values == tuple(b"%d" % n for n in found)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("$.items[", "unexpected end of query at its end"),
        ("$.items x", "unexpected token 'x' at character 9"),
        ("items", "'items' is not a JSON path: a path begins with $"),
        ("", "'' is not a JSON path: a path begins with $"),
        ("$[?match(@.s, '(')]", "'(' is not a pattern of RE2: missing )"),
        ("$[?@.a[?search(@.s, '(')]]", "'(' is not a pattern of RE2: missing )"),
        ("$[?search(@.s, '(a{500}b){3}c{600}')]", "is too large a pattern"),
        ("$[?" + " || ".join(["match(@.s, 'a{900}')"] * 4) + "]", "its patterns are too large together"),
        ("$[?match(@.s)]", "match() requires 2 arguments"),
        ("$[?matches(@.s, 'a')]", "function 'matches' is not defined"),
        ("$[?@.s =~ /(a+)+b/]", "unexpected token"),
        ("$.a | $.b", "unexpected token '|'"),
        ("$[99999999999999999999]", "index out of range"),
        ("$[?@.n == 1e999]", "a number too large"),
        ("$[?" + "!(" * 400 + "@.a" + ")" * 400 + "]", "1207 characters"),
        ("$[?" + "!(" * 300 + "@.a" + ")" * 300 + "]", ""),
    ],
)
def test_a_path_that_does_not_parse_is_named_with_the_place(path: str, reason: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        chosen(path)
    assert str(refused.value).startswith("path: ") and reason in str(refused.value)


@pytest.mark.parametrize("text", ["no json", "[1,", "[" * 100_000, "[1e999]"], ids=["none", "part", "deep", "number"])
def test_a_text_that_is_no_json_says_so(text: str) -> None:
    with pytest.raises(InvalidParams, match="path: the text is not JSON"):
        chosen("$", text)


@pytest.mark.parametrize(
    "path", ["$..*..*..*..*", "$..*..*..*..nothing", "$[?@..*[?@..*]]", "$..*[?count(@..*) > 1e9]", "$..[?$..*]..*..*"]
)
def test_a_path_that_looks_at_everything_again_and_again_is_refused(path: str) -> None:
    deep: object = 1
    for _ in range(60):
        deep = [deep, list(range(40))]
    with pytest.raises(InvalidParams, match="selects too much or takes too long. Narrow it down."):
        select(json.dumps([deep] * 30).encode(), path, after(200))  # of up to some 50,000


def test_pattern_out_of_the_text_that_is_none_matches_nothing() -> None:
    assert chosen("$[?search('a(', @)]", '["(", "a", "a["]') == ['"a"']


def test_text_too_long_to_be_matched_is_an_error_and_one_that_is_not_takes_linear_time() -> None:
    assert chosen("$[?match(@, '(a+)+b')]", json.dumps(["a" * 200_000])) == []
    with pytest.raises(InvalidParams, match="path: match and search take texts of up to 262144 bytes. Use grep."):
        chosen("$[?match(@, '(a+)+b')]", json.dumps(["a" * 300_000]))


def test_each_match_looks_at_the_time() -> None:
    with pytest.raises(InvalidParams, match="takes too long"):
        select(json.dumps(["a"] * 30).encode(), "$[?match(@, 'a')]", after(20))


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$..[?value(@) < 3]", ["1", "2"]),
        ("$.a[?count(@) == 1]", ["1", "2", '"x"', "null"]),
        ('$..[?value(@)=="x"]', ['"x"']),
    ],
)
def test_a_function_of_a_bare_value_is_that_of_one_node(path: str, values: list[str]) -> None:
    assert chosen(path, '{"a":[1,2,"x",null]}') == values


def test_a_text_that_is_nested_too_deeply_for_a_path_says_so() -> None:
    with pytest.raises(InvalidParams, match="nested too deeply"):
        chosen("$..x", "[" * 500 + "]" * 500)
