"""The variables and the `attach` that a configuration names, read without a YAML parser.

Too many variables are harmless, too few are not; an uncertain text is left to the whole command.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

LARGEST = 1 << 20
_ESCAPED = (b"$\\", b"\\u0024", b"\\x24", b"\\u007b", b"\\x7b", b"\\U00000024", b"\\U0000007b", b"\\u{24", b"\\u{7b")
"""Ways in which YAML, JSON5 and TOML write `$` or `{` so that it does not show."""
_BY_NAME = (b"env_var", b"env_http_headers", b"env_keys", b"${{")
"""Keys of Codex and Goose, and the notation of Continue, in which variables stand by their plain names."""
_PASSED = b"pass_env"
"""The key of a list of names."""
_MODES = (b"auto", b"always", b"never")
_BEFORE_KEY = (b"", b" ", b"\t", b"{", b",", b'"', b"'")
_NO_MARKS = bytes(32 if byte in b"\t\r\"',}#" else byte for byte in range(256))
_WORD = bytes(byte if chr(byte).isalnum() and byte < 128 or byte == 95 else 32 for byte in range(256))


def named_variables(text: bytes, candidates: "Collection[str]") -> set[str] | None:
    """The variables that the configuration's values can come from; None if uncertain. `candidates` are set."""
    if b"\0" in text or any(escape in text or escape.lower() in text.lower() for escape in _ESCAPED):
        return None
    found = _of_other_clients(text, candidates)
    start = text.find(b"${")
    while start >= 0:
        end = text.find(b"}", start)
        reference = text[start + 2 : end]
        if end < 0 or b"\\" in reference or len(reference) > 4096:
            return None
        found |= _names(reference.decode("utf-8", "replace"))
        start = text.find(b"${", start + 2)
    lists = _passed_lists(text)
    if lists is None or any(key in text for key in _BY_NAME):
        found |= {word for word in _words(text) if word in candidates}
    for names in lists or ():
        found |= _words(names)
    if b"telemetry" in text:
        found |= {name for name in candidates if name.startswith("OTEL_")}
    return found


def _of_other_clients(text: bytes, candidates: "Collection[str]") -> set[str]:
    """Variables written as `$VAR`, `%VAR%` or `{env:VAR}`."""
    starts = [part.removeprefix(b"{") for part in text.split(b"$")[1:]]
    starts += text.split(b"{env:")[1:]
    words = {part.translate(_WORD).split(b" ", 1)[0] for part in starts}
    words |= {part for part in text.split(b"%")[1:-1] if part == part.translate(_WORD)}
    return {word.decode() for word in words} & set(candidates)


def _words(text: bytes) -> set[str]:
    return {word.decode() for word in text.translate(_WORD).split()}


def _passed_lists(text: bytes) -> list[bytes] | None:
    """The lists under `pass_env`; None for another form, such as an alias."""
    lists: list[bytes] = []
    for part in text.split(_PASSED)[1:]:
        if part[:1].translate(_WORD).strip():
            continue  # another word, which begins like this one
        after = part.lstrip(b"\"' \t\r\n")
        value = after[1:].lstrip(b" \t")
        if after[:1] not in (b":", b"="):
            return None
        if value.startswith(b"["):
            names, end, _ = value.partition(b"]")
        else:
            head, end, rows = value.partition(b"\n")
            names = b"" if head.partition(b"#")[0].strip() else b"-" + _items(rows)
        if not end or not names or b"\\" in names:
            return None
        lists.append(names)
    return lists


def _items(rows: bytes) -> bytes:
    """The lines of a YAML block list, up to the first other line."""
    items: list[bytes] = []
    for row in rows.split(b"\n"):
        if row.strip() and row.lstrip()[:1] not in (b"-", b"#"):
            break
        items.append(row)
    return b"\n".join(items)


def _names(reference: str) -> set[str]:
    """`VAR`, `env:VAR`, `VAR:-default`, and the variable of `input:name`."""
    if reference.startswith("client."):  # a folder of the client, which does not tell hubs apart
        return set()
    name = reference.removeprefix("input:")
    if name != reference:
        return {"".join(char if char.isalnum() or char == "_" else "_" for char in name.upper())}
    return {reference.removeprefix("env:").partition(":-")[0]}


def written_mode(text: bytes) -> str | None:
    """The `hub.attach` of the text; empty without one, None if uncertain."""
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
    return before[-1:] in _BEFORE_KEY and after.lstrip(b"\"' \t\r")[:1] in (b"", b":", b"=")


def _first_word(text: bytes) -> bytes:
    return text.translate(_NO_MARKS).split(b" ", 1)[0] if (text := text.lstrip(b" \t\"'")) else b""
