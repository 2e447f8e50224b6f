"""Keeps a person's options in a new entry of the hub, or refuses it: a client must not reach more than before."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import msgspec

from mcp_hub.attach.arguments import USERS_FILE, find_config
from mcp_hub.config.findings import nearest
from mcp_hub.config.load.foreign_windows import words_in_wsl
from mcp_hub.config.schema.settings import Settings
from mcp_hub.onboarding.clients.entries import HUB, Slot
from mcp_hub.onboarding.files import FileRefused
from mcp_hub.types import JsonObject

_PROGRAM: Final = re.compile(r"(?:^|[/\\])mcp-hub(?:\.exe)?(?:[@:]\S+)?$")
_UVX: Final = re.compile(r"(?:^|[/\\])uvx(?:\.exe)?$")
_FLAGS: Final = ("--http", "--warm")
_URLS: Final = ("url", "uri", "serverUrl", "httpUrl")
_TOKENS: Final = ("headers", "http_headers", "bearer_token_env_var", "env_http_headers")
_STARTED: Final = ("env", "envs", "environment", "cwd", "envFile")
_FORM: Final = ("type", "transport", "name", "command", "cmd", "args", *_URLS)
"""Keys about how to reach the hub, which `install` writes."""
PROFILE_PATH: Final = "/mcp/p/"
"""A profile's path in a hub's URL, before its name."""
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_UNKNOWN_TEXT: Final = re.compile(r"[$%{]")
"""A part of a path that only the client fills in."""


class EntryRules(msgspec.Struct, frozen=True):
    """The new entry's configuration and profile. `replaceable`: a configuration that the hub wrote itself."""

    config: str = ""
    settings: Settings = msgspec.field(default_factory=Settings)
    env: Mapping[str, str] = {}
    profile: str | None = None
    replaceable: str | None = None


def _differs(reason: str) -> FileRefused:
    return FileRefused("client_entry_differs", reason)


def entry_with_options(
    new: JsonObject, old: JsonObject, template: Mapping[str, object], rules: EntryRules
) -> JsonObject:
    """The new entry with a person's additions from `old`, in its order. Raises `FileRefused`.

    Replaces an `old` that neither starts the hub nor has a URL.
    """
    old = _in_form(old, new)
    words, url = _words(old), _text_of(_inner(old), _URLS)
    if "serve" not in words and not url:
        if not any(map(_PROGRAM.search, words)):
            return new
        words.append("serve")  # as an image of a container may do by itself
    _check_linux(old, new)
    if bool(url) != _is_remote(new):
        _check_switch(words, url, old, rules)
        new, old = _with_profile(new, template, _profile(old, rules)), _without_form(old)
    elif url:
        _check_url(url)
        new = _with_profile(new, template, _profile(old, rules))
    else:
        serve = _serve_words(words, old)
        new = _changed(new, template, lambda args: _arguments(serve, args, old, rules))
    return _merged(new, old, template)


def additions(entry: JsonObject, plain: JsonObject) -> list[str]:
    """Options and keys that `install` does not write, without values."""
    usual = {name for name, _, _ in _options(_after_serve(_words(plain)))}
    names = [name for name, _, _ in _options(_after_serve(_words(entry))) if name not in usual]
    inner = [key for key in _inner(entry) if key not in _inner(plain) and _inner(entry) is not entry]
    changed = [key for key in plain if key not in _FORM and entry.get(key) != plain[key]]
    return list(dict.fromkeys([*names, *inner, *changed, *(key for key in entry if key not in plain)]))


def profile_of(entry: JsonObject) -> str | None:
    """The entry's profile, from an option or the URL; None: all servers."""
    url = _text_of(_inner(entry), _URLS)
    if url and (path := _path_of(url)) is not None and path.startswith(PROFILE_PATH):
        return unquote(path.removeprefix(PROFILE_PATH))
    return _option(_after_serve(_words(entry)), "--profile")


def other_linux(entry: JsonObject, distribution: str, user: str) -> str:
    """The entry's WSL distribution or user, if another one, else empty."""
    inside = words_in_wsl(_all_words(entry))
    options = {} if inside is None else inside[0]
    if options.get("--distribution", distribution).casefold() != distribution.casefold():
        return f"in the WSL distribution {options['--distribution']}"
    return f"for the Linux user {options['--user']}" if options.get("--user", user) != user else ""


def has_variables(entry: JsonObject) -> bool:
    return any(_inner(entry).get(key) for key in ("env", "envs", "environment"))


def _in_form(old: JsonObject, new: JsonObject) -> JsonObject:
    if not isinstance(new.get("transport"), dict) or isinstance(old.get("transport"), dict):
        return old
    moved = {key: old[key] for key in old if key in (*_FORM, *_STARTED, *_TOKENS)}
    return {**{key: old[key] for key in old if key not in moved}, "transport": moved}


def _inner(entry: JsonObject) -> JsonObject:
    transport = entry.get("transport")
    return transport if isinstance(transport, dict) else entry


def _text_of(entry: JsonObject, keys: Sequence[str]) -> str:
    return next((value for key in keys if isinstance(value := entry.get(key), str) and value), "")


def _is_remote(entry: JsonObject) -> bool:
    return bool(_text_of(_inner(entry), _URLS))


def _words(entry: JsonObject) -> list[str]:
    words = _all_words(entry)
    inside = words_in_wsl(words)
    return words if inside is None else inside[1]


def _all_words(entry: JsonObject) -> list[str]:
    inner = _inner(entry)
    command, args = inner.get("command", inner.get("cmd")), inner.get("args")
    words = [*(command if isinstance(command, list) else [command]), *(args if isinstance(args, list) else [])]
    if len(words) == 1 and isinstance(command, str) and " serve" in command:
        try:
            return shlex.split(command)
        except ValueError:
            return [command]
    return [word if isinstance(word, str) else str(word) for word in words if word is not None]


def _after_serve(words: Sequence[str]) -> list[str]:
    return [*words[words.index("serve") + 1 :]] if "serve" in words else []


def _serve_words(words: list[str], old: JsonObject) -> list[str]:
    """Raises `FileRefused` if another program, perhaps a sandbox, starts the hub."""
    at = words.index("serve")
    before = words[:at]
    is_plain = (
        len(before) == 1
        and _PROGRAM.search(before[0])
        or len(before) == 2
        and _UVX.search(before[0])
        and _PROGRAM.search(before[1])
        or before[1:] == ["-m", "mcp_hub"]
    )
    if not is_plain:
        raise _differs(f'it starts the hub by "{" ".join(before)}", which a new entry would leave out')
    return words[at + 1 :]


def _options(words: Sequence[str]) -> Iterator[tuple[str, str, slice]]:
    at = 0
    while at < len(words):
        word, size = words[at], 1
        name, equals, value = word.partition("=")
        if word.startswith("-c"):
            name, value, equals = "--config", word[2:], word[2:]
        if not word.startswith("-"):
            name, value = "", word
        elif not equals and name not in _FLAGS and at + 1 < len(words):
            value, size = words[at + 1], 2
        yield name, value, slice(at, at + size)
        at += size


def _option(words: Sequence[str], option: str) -> str | None:
    values = [value for name, value, _ in _options(words) if name == option]
    return values[-1] if values else None


def _arguments(old_words: list[str], args: list[str], old: JsonObject, rules: EntryRules) -> list[str]:
    values = {"--config": _checked_config(old_words, old, rules)}
    kind = _option(args, "--client")
    if kind is not None:
        values["--client"] = _checked_kind(_option(old_words, "--client"), kind, rules)
    if (profile := _profile(old, rules)) is not None:
        values["--profile"] = profile
    arguments: list[str] = []
    for name, _, part in _options(old_words):
        arguments += old_words[part] if name not in values else [name, str(values[name])]
    missing = [name for name in values if _option(old_words, name) is None and values[name] is not None]
    added = [word for name in missing for word in (name, str(values[name]))]
    _, inside = words_in_wsl(args) or words_in_wsl(["wsl.exe", *args]) or ({}, args)  # one of a list may be left out
    before = len(args) - len(inside) + inside.index("serve")
    return [*args[: before + 1], *arguments, *added]


def _profile(old: JsonObject, rules: EntryRules) -> str | None:
    profile = profile_of(old)
    if rules.profile is None and profile is not None and profile not in rules.settings.profiles:
        hint = nearest(profile, rules.settings.profiles) or "."
        message = f"it has the profile {profile}, which {rules.config} does not have{hint}"
        raise _differs(f"{message} Name the right one with --profile")
    return rules.profile or profile


def _with_profile(new: JsonObject, template: Mapping[str, object], profile: str | None) -> JsonObject:
    if profile is None or profile_of(new) is not None:
        return new
    return _changed(
        new,
        template,
        lambda words: [*words, "--profile", profile],
        lambda url: url.removesuffix("/mcp") + PROFILE_PATH + quote(profile, safe=""),
    )


def _checked_kind(old: str | None, kind: str, rules: EntryRules) -> str:
    if old is not None and old.casefold() not in rules.settings.client_table.names:
        raise _differs(f"it has --client {old}, and hub.clients of {rules.config} does not have that kind")
    return kind if old is None else old


def _checked_config(words: list[str], old: JsonObject, rules: EntryRules) -> str | None:
    variables = next((value for key in _STARTED if isinstance(value := _inner(old).get(key), dict)), {})
    option = _option(words, "--config")
    old_config = variables.get("MCP_HUB_CONFIG") if option is None else option
    if not isinstance(old_config, str) or not old_config:
        return rules.config
    path = find_config(old_config, "/", rules.env) if old_config == USERS_FILE else os.path.expanduser(old_config)
    folder = _inner(old).get("cwd")
    if path is not None and isinstance(folder, str):
        path = os.path.join(os.path.expanduser(folder), path)
    if path is not None and os.path.realpath(path) == os.path.realpath(rules.config) and os.path.isabs(path):
        return old_config if option is not None else None
    is_gone = path is not None and os.path.isabs(path) and not _UNKNOWN_TEXT.search(path) and not Path(path).exists()
    if is_gone or option is not None and path == rules.replaceable:
        return rules.config
    reason = f"it starts the hub of {old_config}, and the new one would start that of {rules.config}"
    raise _differs(f"{reason}. To keep it: --config {path}" if path and os.path.isfile(path) else reason)


def _path_of(url: str) -> str | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return None if parts.hostname not in _LOOPBACK or parts.query or "@" in parts.netloc else parts.path


def _check_url(url: str) -> None:
    path = _path_of(url)
    if path is None or path != "/mcp" and not re.fullmatch(f"{PROFILE_PATH}[^/]+", path):
        raise _differs("its URL is not that of a hub on this machine")


def _check_switch(words: list[str], url: str, old: JsonObject, rules: EntryRules) -> None:
    inner = _inner(old)
    if url:
        _check_url(url)
        is_bound = any(token.profile is not None for token in rules.settings.hub.tokens)
        usual = "HUB_TOKEN" in str([inner.get(key) for key in _TOKENS])
        options = [key for key in _TOKENS if inner.get(key) and (is_bound or not usual)]
    else:
        usual_words = ("--config", "--client", "--profile")
        options = [name or value for name, value, _ in _options(_serve_words(words, old)) if name not in usual_words]
        options += [key for key in _STARTED if inner.get(key)]
        _checked_config(_after_serve(words), old, rules)
    if options:
        form = "that starts the hub" if url else "over HTTP"
        raise _differs(f"it has {', '.join(options)}, which an entry {form} cannot keep")


def _without_form(old: JsonObject) -> JsonObject:
    return {key: value for key, value in old.items() if key not in (*_FORM, *_STARTED, *_TOKENS)}


def _changed(
    new: JsonObject,
    template: Mapping[str, object],
    words: Callable[[list[str]], list[str]],
    url: Callable[[str], str] = str,
) -> JsonObject:
    changed: JsonObject = {}
    for key, value in new.items():
        part = template.get(key)
        if part is Slot.ARGS or part is Slot.ARGV:
            changed[key] = words([str(word) for word in value])
        elif part is Slot.URL:
            changed[key] = url(str(value))
        else:
            changed[key] = _changed(value, part, words, url) if isinstance(part, Mapping) else value
    return changed


def _check_linux(old: JsonObject, new: JsonObject) -> None:
    words = words_in_wsl(_all_words(new))
    if words is not None and (
        there := other_linux(old, words[0].get("--distribution", ""), words[0].get("--user", ""))
    ):
        raise _differs(f"it starts the hub {there}, and the new one would start it in this Linux")


def _merged(new: JsonObject, old: JsonObject, template: Mapping[str, object]) -> JsonObject:
    merged: JsonObject = {}
    for key in dict.fromkeys([*old, *new]):
        part = template.get(key)
        if key not in new:
            merged[key] = old[key]
        elif isinstance(part, Mapping) and isinstance(new[key], dict) and isinstance(old.get(key), dict):
            merged[key] = _merged(new[key], old[key], part)
        elif key in _FORM or key not in old:
            merged[key] = new[key]
        else:
            merged[key] = old[key]
    return {key: value for key, value in merged.items() if key in new or key not in _FORM}


def refusal(client: str, problem: FileRefused) -> FileRefused:
    """The refusal for people; `client` is its command-line name."""
    message = (
        f'the entry "{HUB}" stays as it is: {problem}. To replace it: mcp-hub uninstall {client}, then install again.'
    )
    return FileRefused(problem.code, message)
