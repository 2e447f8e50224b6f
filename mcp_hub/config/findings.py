"""Mistakes and warnings about a configuration, each with line, path and advice."""

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from mcp_hub.errors import ConfigError, ConfigFinding

_CLOSE: Final = 0.65
"""Similarity from which a word is proposed."""

DataPath = tuple[str | int, ...]
"""Keys and list indexes from the root of the file."""


class Finding(msgspec.Struct, frozen=True):
    """One mistake or warning; `line` None: that of the path. `is_failure`: it makes a server fail."""

    path: DataPath
    code: str
    message: str
    line: int | None = None
    is_failure: bool = False


class Flaw(NamedTuple):
    """A mistake in a key of the mapping being validated."""

    key: str
    code: str
    message: str


class Findings(msgspec.Struct):
    """All findings about one file. `written` maps a top-level key to its path in the file.

    `slips` may explain errors; reported only with them.
    """

    name: str
    lines: Mapping[DataPath, int] = msgspec.field(default_factory=dict)
    written: dict[str | int, DataPath] = msgspec.field(default_factory=dict)
    errors: list[Finding] = msgspec.field(default_factory=list)
    warnings: list[Finding] = msgspec.field(default_factory=list)
    slips: list[Finding] = msgspec.field(default_factory=list)

    def error(self, path: DataPath, code: str, message: str) -> None:
        self.errors.append(Finding(path, code, message))

    def warn(self, path: DataPath, code: str, message: str, *, is_failure: bool = False) -> None:
        self.warnings.append(Finding(path, code, message, is_failure=is_failure))

    def read_at(self, key: str, path: DataPath) -> None:
        """Notes that section `key` stands at `path` in the file; earlier errors there become errors of `key`."""
        self.written[key] = path
        size = len(path)
        self.errors = [
            msgspec.structs.replace(error, path=(key, *error.path[size:])) if error.path[:size] == path else error
            for error in self.errors
        ]

    def excuse(self, is_spared: Callable[[Finding], bool]) -> None:
        """Turns errors into warnings."""
        spared = [error for error in self.errors if is_spared(error)]
        self.errors = [error for error in self.errors if error not in spared]
        self.warnings += spared

    def located(self, findings: Iterable[Finding]) -> tuple[ConfigFinding, ...]:
        """The findings with lines, sorted and without repetitions."""
        located = [self._located(finding) for finding in findings]
        located.sort(key=lambda finding: finding.line or 0)
        return tuple(dict.fromkeys(located))

    def failures(self) -> dict[str, tuple[ConfigFinding, ...]]:
        """The reasons of failed servers, by server."""
        fatal = [finding for finding in self.warnings if finding.is_failure]
        names = dict.fromkeys(str(finding.path[1]) for finding in fatal)
        return {
            name: self.located(fatal_finding for fatal_finding in fatal if fatal_finding.path[1] == name)
            for name in names
        }

    def failure(self) -> ConfigError:
        return ConfigError(*self.located([*self.errors, *self.slips]))

    def _located(self, finding: Finding) -> ConfigFinding:
        path, message = path_text(self._as_written(finding.path)), on_one_line(finding.message)
        return ConfigFinding(finding.code, message, on_one_line(self.name), self._line(finding), path=on_one_line(path))

    def _line(self, finding: Finding) -> int | None:
        path = self._as_written(finding.path)
        around = (self.lines.get(path[:length]) for length in range(len(path), -1, -1))
        return finding.line or next((line for line in around if line is not None), None)

    def _as_written(self, path: DataPath) -> DataPath:
        return (*self.written.get(path[0], path[:1]), *path[1:]) if path else path


def nearest(word: str, words: Iterable[str]) -> str:
    """`. Did you mean "…"?`, or empty."""
    close = difflib.get_close_matches(word[:64], list(words), n=1, cutoff=_CLOSE)
    return f". Did you mean {quoted(close[0])}?" if close else ""


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def on_one_line(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def path_text(path: DataPath) -> str:
    """The path as people write it: `servers.git.args[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part and all(char.isalnum() or char in "_-@/" for char in part):
            text += f".{part}" if text else part
        else:
            text += f"[{quoted(part)}]"
    return text
