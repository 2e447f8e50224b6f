"""`${…}`: what it fills in, what it refuses, and what it remembers as secret."""

from pathlib import Path

import pytest

from mcp_hub.config.load.interpolate import Unresolved, resolve

ENV = {"TOKEN": "s3cr3t-token", "EMPTY": "", "HOME": "/home/alice", "PORT": "8080", "NESTED": "${TOKEN}"}


def filled(text: str, base: Path = Path("/nowhere")) -> str:
    return resolve(text, ENV, base)[0]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain $HOME {x}", "plain $HOME {x}"),
        ("Bearer ${TOKEN}", "Bearer s3cr3t-token"),
        ("${env:TOKEN}", "s3cr3t-token"),
        ("${UNSET:-a:-b}", "a:-b"),
        ("${EMPTY:-used}", "used"),
        ("[${EMPTY}]", "[]"),
        ("${TOKEN:-unused}", "s3cr3t-token"),
        ("${env:UNSET:-x}", "x"),
        ("$${TOKEN}", "${TOKEN}"),
        ("${PORT}$${PORT}${PORT}", "8080${PORT}8080"),
        ("${NESTED}", "${TOKEN}"),
    ],
)
def test_reference_is_filled_in_once(text: str, result: str) -> None:
    assert filled(text) == result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${UNSET_TOKEN}", r"Set it, or keep its value in a file of yours: \$\{file:secrets/UNSET_TOKEN\}"),
        ("${UNSET}", r"environment variable UNSET is not set. Set it, or write \$\{UNSET:-default\}"),
        ("${env:UNSET}", "environment variable UNSET is not set"),
        ("${TOKEN", "never closed"),
        ("${A:-${B}}", "is not supported"),
        ("${}", "expected "),
        ("${keyring:x}", "expected "),
        ("${two words}", "expected "),
    ],
)
def test_reference_that_cannot_be_filled_in_says_why(text: str, message: str) -> None:
    with pytest.raises(Unresolved, match=message):
        filled(text)


@pytest.mark.parametrize(("content", "result"), [("key\n", "key"), ("key\r\n", "key"), ("a\n\n", "a\n"), ("", "")])
def test_file_comes_without_one_trailing_newline(tmp_path: Path, content: str, result: str) -> None:
    (tmp_path / "key").write_bytes(content.encode())
    assert filled("${file:key}", tmp_path) == result


def test_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unresolved, match=f"cannot read file {tmp_path}/none: No such file"):
        filled("${file:none}", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"), [(b"x" * 65537, "larger than 65536 bytes"), (b"\xff\xfe", "not UTF-8 text")]
)
def test_file_that_is_no_short_text_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(Unresolved, match=message):
        filled("${file:key}", tmp_path)


@pytest.mark.parametrize("name", ["/dev/zero", "."])
def test_what_is_no_regular_file_is_never_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(Unresolved, match="not a regular file"):
        filled("${file:" + name + "}", tmp_path)


def test_values_from_outside_are_remembered_as_secret(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("file-secret\n")
    secrets = resolve("${TOKEN} ${file:key} ${UNSET:-a default}", ENV, tmp_path)[1]
    assert secrets == {"s3cr3t-token", "file-secret"}


def test_value_of_a_secret_file_is_masked_whatever_it_looks_like(tmp_path: Path) -> None:
    for value in ("4711", "some-team", "true", "/home/jane"):
        (tmp_path / "key").write_text(f"{value}\n")
        assert resolve("${file:key}", ENV, tmp_path)[1] == {value}


def test_home_and_short_words_are_no_secrets() -> None:
    assert resolve("${HOME}/work:${PORT}:${HOME:-x}", ENV, Path("/nowhere"))[1] == frozenset()
