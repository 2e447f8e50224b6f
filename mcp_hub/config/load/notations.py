"""Other clients' placeholders in our notation. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.config.load.check import SCRIPT, SHELLS, program_name
from mcp_hub.config.load.foreign import conventions_of
from mcp_hub.config.load.foreign_windows import of_windows
from mcp_hub.config.load.interpolate import Reference, Unresolved, escaped, is_variable_name, joined, split_text
from mcp_hub.config.load.secrets import is_secret
from mcp_hub.globs import late
from mcp_hub.types import JsonObject

Part = str | Reference

_BRACE: Final = r"\$(?P<escape>\$\{)|\$\{(?P<brace>[^{}$]*)\}"
_SHELL: Final = r"\$(?P<shell>[A-Za-z_]\w*)|%(?P<percent>[A-Za-z_]\w*)%"
_CURLY: Final = r"\{(?P<kind>env|file):(?P<text>[^{}]+)\}"
_DOUBLE: Final = r"\$\{\{\s*(?:secrets|inputs|env)\.(?P<double>[A-Za-z_]\w*)\s*\}\}"
_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "$NAME": late(f"{_BRACE}|{_SHELL}"),
    "{env:NAME}": late(f"{_BRACE}|{_CURLY}"),
    "${{env.NAME}}": late(f"{_DOUBLE}|{_BRACE}"),
    "": late(_BRACE),
}
"""By the notation of a client's conventions."""
_WHOLE: Final = late(r"\$(?P<shell>[A-Z_][A-Z0-9_]*)|%(?P<percent>[A-Z_][A-Z0-9_]*)%")
"""A value that is only a variable's name, and means the variable in any client."""
_WORKSPACE: Final = frozenset(("workspaceFolder", "workspaceRoot", "workspaceFolderBasename", "CLAUDE_PROJECT_DIR"))
_LOOKUPS: Final = ("file:", "keyring:", "cmd:")
_ASKED_OF_EDITOR: Final = ("command:", "config:", "workspaceFolder:")
_OF_EDITOR: Final = late(
    r"(relative)?[fF]ile([A-Z]\w*)?|relativeFileDirname|cwd|execPath|lineNumber|columnNumber|selectedText"
    r"|defaultBuildTask|container\w+|localWorkspaceFolder\w*"
)
"""Names of open things in VS Code and Dev Containers."""
_NAMES: Final = late(r"\$\{?([A-Za-z_]\w*)")
_ALWAYS: Final = frozenset("PATH HOME USER LOGNAME SHELL LANG PWD TERM TZ TMPDIR".split())
"""Variables that every server has."""
_BUDGET: Final = 1 << 20
"""Characters that nested variables of one server may have, plus `_EACH` per variable."""
_EACH: Final = 1024
_DEEPEST: Final = 32
"""Nested variables."""
_NO_WORKSPACE: Final = (
    "${{{}}} is the folder that is open in the client, and this file belongs to no project. Write the folder"
)


class Notation(msgspec.Struct, frozen=True):
    """A client's notation, with the values for one server.

    `names`: folders. `variables`, the server's own, come before `env`. `files`: folder for `{file:…}`, or None. `ask`
    and `keep` return our text for an input, or a server's variable. `note` gets places that stay text.
    """

    client: str
    env: Mapping[str, str]
    names: Mapping[str, str]
    variables: Mapping[str, str]
    files: Path | None
    ask: Callable[[str], str]
    keep: Callable[[str, str], str]
    note: Callable[[str, str], None]
    spent: list[int] = msgspec.field(default_factory=list)
    """Costs of filled variables, of `_BUDGET`."""
    depth: int = 0
    is_elsewhere: bool = False
    """The variables belong to Windows; none is filled in."""

    def server(self, entry: JsonObject) -> JsonObject:
        """The server in our notation. Raises `Unresolved` for values that only the client has."""
        script = script_of(entry)
        expanded = {key: value if key == "args" else self._value(value, key) for key, value in entry.items()}
        if isinstance(args := entry.get("args"), list):
            texts = [arg if isinstance(arg, str) else None for arg in args]
            expanded["args"] = [
                args[index] if text is None else escaped(text) if index == script else self.text(text, "args")
                for index, text in enumerate(texts)
            ]
            if script is not None and (passed := self._names_in(str(args[script]))):
                present = entry.get("pass_env")
                expanded["pass_env"] = list(dict.fromkeys([*(present if isinstance(present, list) else ()), *passed]))
        return expanded

    def _names_in(self, script: str) -> list[str]:
        names = dict.fromkeys(_NAMES.findall(script))
        return [name for name in names if name in self.env and name not in self.variables and name not in _ALWAYS]

    def _value(self, value: object, key: str) -> object:
        if isinstance(value, str):
            return self.text(value, key)
        if isinstance(value, list):
            return [self._value(item, key) for item in value]
        if not isinstance(value, dict):
            return value
        if key == "env":  # a variable is not its own value
            return {name: self._without(name)._whole(item, key) for name, item in value.items()}
        if key == "headers":
            return {name: self._whole(item, key) for name, item in value.items()}
        return {name: self._value(item, key) for name, item in value.items()}

    def _whole(self, value: object, key: str) -> object:
        match = _WHOLE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            return self._value(value, key)
        return joined(self._variable(match["shell"] or match["percent"], match[0], key, expands=True))

    def _without(self, name: str) -> "Notation":
        variables = {key: value for key, value in self.variables.items() if key != name}
        return msgspec.structs.replace(self, variables=variables, depth=self.depth + 1)

    def text(self, text: str, key: str) -> str:
        try:
            return joined(self._parts(text, key))
        except Unresolved as problem:
            if problem.code != "invalid_placeholder":
                raise
            self.note(key, f"{problem}. It stays text")
            return escaped(text)

    def _parts(self, text: str, key: str) -> Iterator[Part]:
        end = 0
        notation = "$NAME" if (self.client, key) == ("goose", "headers") else conventions_of(self.client).notation
        for match in _PATTERNS[notation].finditer(text):
            yield text[end : match.start()]
            yield from self._part(match, key)
            end = match.end()
        yield text[end:]

    def _part(self, match: re.Match[str], key: str) -> list[Part]:
        groups = match.groupdict()
        if groups["escape"]:
            return ["${"]
        if groups.get("kind") == "file":
            return self._file(match[0], groups["text"])
        bare = groups.get("shell") or groups.get("percent")
        if bare is not None and bare not in self.variables and bare not in self.env and match[0] != match.string:
            return [match[0]]
        name = bare or groups.get("double") or (groups["text"] if groups.get("kind") else None)
        if name is not None:
            return self._variable(name, match[0], key, expands=True) if is_variable_name(name) else [match[0]]
        return self._brace(groups["brace"], match[0], key)

    def _brace(self, inside: str, written: str, key: str) -> list[Part]:
        name = inside.partition(":-")[0]
        if inside in self.names or name in self.names:
            return [self.names[name if name in self.names else inside]]
        if name in _WORKSPACE and inside == name and not (name == "CLAUDE_PROJECT_DIR" and name in self.env):
            raise Unresolved("workspace_unknown", _NO_WORKSPACE.format(name))
        if self.is_elsewhere and inside == "userHome":
            raise of_windows(written)
        if inside.startswith("input:"):
            return split_text(self.ask(inside.removeprefix("input:")))
        conventions = conventions_of(self.client)
        if inside.startswith("file:") and conventions.has_files:
            return self._file(written, inside.removeprefix("file:"))
        if inside.startswith(_LOOKUPS):  # other clients look nothing up by these
            return [written]
        if inside.startswith(_ASKED_OF_EDITOR) or conventions.is_editor and _OF_EDITOR.fullmatch(inside):
            raise Unresolved("workspace_unknown", f"only the client has a value for {written}. Write the value")
        if inside.startswith("localEnv:"):  # of Dev Containers, where a default stands behind another colon
            inside = re.sub(r"^localEnv:([^:]*):", r"env:\1:-", inside).replace("localEnv:", "env:", 1)
        plain = inside.removeprefix("env:")
        if not is_variable_name(plain.partition(":-")[0]):
            self.note(key, f"{written} stays text: it names no variable")
            return [written]
        form = "env" if inside.startswith("env:") else "names"
        return self._variable(plain, written, key, expands=conventions.in_arguments == form)

    def _variable(self, reference: str, written: str, key: str, *, expands: bool) -> list[Part]:
        name, has_default, _ = reference.partition(":-")
        if name in self.variables:
            value = self.variables[name]
            self.spent.append(_EACH + len(value))
            if sum(self.spent) > _BUDGET or self.depth > _DEEPEST:
                raise Unresolved("invalid_placeholder", "the variables of this server in one another are too many")
            if is_secret(name, value):
                return split_text(self.keep(name, value))
            return split_text(self._without(name).text(value, "env"))
        if key == "args" and name not in self.env and not has_default and not expands:
            self.note(key, f"{written} stays text: {name} is not set, and the client does not fill it in either")
            return [written]
        if self.is_elsewhere:
            raise of_windows(written)
        # ${env:cmd:-x} is a variable called cmd with a default; ${cmd:-x} would be a program
        return [Reference(f"env:{reference}" if reference.startswith(_LOOKUPS) else reference)]

    def _file(self, written: str, text: str) -> list[Part]:
        if self.files is None:
            self.note("", f"{written} stays text: a file of a project reads no files of yours. Set the value yourself")
            return [written]
        return [Reference(f"file:{text if text.startswith('~') else self.files / text}")]


def script_of(entry: JsonObject) -> int | None:
    """The index of the script behind `sh -c`."""
    args = entry.get("args")
    words = [entry.get("command"), *(args if isinstance(args, list) else ())]
    is_shell = False
    for index, word in enumerate(words[:-1]):
        if not isinstance(word, str):
            continue
        if is_shell and SCRIPT.fullmatch(word):
            return index  # of the next word, among the arguments
        is_shell = is_shell and word.startswith("-") or program_name(word) in SHELLS
    return None
