"""The environment variables that the text of a configuration names, and its `attach`, without reading YAML.

What is found is a superset: other values of a variable that is only mentioned mean one hub more, never one with
another client's credentials. A text of which it is not certain is for the whole command.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

LARGEST = 1 << 20
_ESCAPED = (b"$\\", b"\\u0024", b"\\x24", b"\\u007b", b"\\x7b", b"\\U00000024", b"\\U0000007b", b"\\u{24", b"\\u{7b")
"""Ways in which YAML, JSON5 and TOML write `$` or `{` so that it does not show."""
_BY_NAME = (b"env_var", b"env_http_headers")
"""Keys of Codex under which variables stand by their plain names."""
_MODES = (b"auto", b"always", b"never")
_BEFORE_KEY = (b"", b" ", b"\t", b"{", b",", b'"', b"'")
_NO_MARKS = bytes(32 if byte in b"\t\r\"',}#" else byte for byte in range(256))
_WORD = bytes(byte if chr(byte).isalnum() and byte < 128 or byte == 95 else 32 for byte in range(256))


def named_variables(text: bytes, known: "Collection[str]") -> set[str] | None:
    """The names of variables that values of the configuration can come from; None if that is not certain.

    `known` are the variables that are set.
    """
    if any(escape in text or escape.lower() in text.lower() for escape in _ESCAPED):
        return None
    found: set[str] = set()
    start = text.find(b"${")
    while start >= 0:
        end = text.find(b"}", start)
        reference = text[start + 2 : end]
        if end < 0 or b"\\" in reference or len(reference) > 4096:
            return None
        found |= _names(reference.decode("utf-8", "replace"))
        start = text.find(b"${", start + 2)
    if any(key in text for key in _BY_NAME):
        found |= {word for raw in text.translate(_WORD).split() if (word := raw.decode()) in known}
    return found


def _names(reference: str) -> set[str]:
    """`VAR`, `env:VAR`, `VAR:-default`, and the variable that stands for `input:name`."""
    asked = reference.removeprefix("input:")
    if asked != reference:
        return {"".join(char if char.isalnum() or char == "_" else "_" for char in asked.upper())}
    return {reference.removeprefix("env:").partition(":-")[0]}


def written_mode(text: bytes) -> str | None:
    """The `hub.attach` that the text has; "" without one, None if that is not certain."""
    modes: set[str] = set()
    for line in text.split(b"\n") if b"attach" in text else ():
        start = -1 if line.lstrip().startswith(b"#") else line.find(b"attach")
        while start >= 0:
            before, after = line[:start], line[start + len(b"attach") :]
            if _is_key(before, after):
                value = _first_word(after.lstrip(b"\"' \t").removeprefix(b":"))
                if before.strip(b" \t{\"',") not in (b"", b"hub:", b'hub":') or value not in _MODES:
                    return None
                modes.add(value.decode())
            start = line.find(b"attach", start + 1)
    return None if len(modes) > 1 else "".join(modes)


def _is_key(before: bytes, after: bytes) -> bool:
    """Whether a word may be a key, and not a part of a path or of another name; it may go on in the next line."""
    return before[-1:] in _BEFORE_KEY and after.lstrip(b"\"' \t\r")[:1] in (b"", b":", b"=")


def _first_word(text: bytes) -> bytes:
    return text.translate(_NO_MARKS).split(b" ", 1)[0] if (text := text.lstrip(b" \t\"'")) else b""
