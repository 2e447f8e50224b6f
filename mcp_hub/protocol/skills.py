"""Skills (SEP-2640): entries of `skills/list`, and their folders."""

from collections.abc import Iterable, Iterator
from functools import cache
from mimetypes import MimeTypes
from typing import Annotated, Final, Literal
from urllib.parse import unquote

import msgspec

from mcp_hub.types import JsonObject, RawObject

MOST_FILES: Final = 512
MOST_BYTES: Final = 16 << 20
"""Limits of one skill: files, and their bytes in all (SEP-2640, "Limits")."""
MARKDOWN: Final = ".md"
MAIN: Final = f"SKILL{MARKDOWN}"
DIRECTORY: Final = "inode/directory"
"""The media type of a directory resource."""
SERVER: Final = "dev.mcp-hub/server"
"""`_meta` key of skills and of what is read of them: the server that they come from, by its name in the hub."""


@cache
def _types() -> MimeTypes:
    """Independent of the system's files."""
    return MimeTypes()


class _SkillFile(msgspec.Struct, frozen=True):
    """Digest and length are of the raw bytes."""

    uri: str
    digest: Annotated[str, msgspec.Meta(pattern=r"\Asha256:[0-9a-f]{64}\Z")]
    size: Annotated[int, msgspec.Meta(ge=0)]


class _Frontmatter(msgspec.Struct, frozen=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    description: Annotated[str, msgspec.Meta(min_length=1)]


class SkillEntry(msgspec.Struct, frozen=True):
    """A skill; `resources` are its files, or "dynamic". Decoding checks what hosts must."""

    uri: str
    frontmatter: _Frontmatter
    resources: list[_SkillFile] | Literal["dynamic"]
    meta: RawObject | None = msgspec.field(name="_meta", default=None)

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem is not None:
            raise ValueError(problem)

    @property
    def description(self) -> str:
        return self.frontmatter.description

    def _problem(self) -> str | None:
        segments = self.uri.partition("://")[2].split("/")
        if len(segments) < 2 or segments[-1] != MAIN:
            return f"uri does not end in /<name>/{MAIN}"
        if unquote(segments[-2]) != self.frontmatter.name:
            return f"the last folder of uri is {segments[-2]}, but the name is {self.frontmatter.name}"
        return None if isinstance(self.resources, str) else self._problem_of_files(self.resources)

    def _problem_of_files(self, files: list[_SkillFile]) -> str | None:
        uris, folder = {file.uri for file in files}, f"{root_of(self.uri)}/"
        if self.uri not in uris:
            return f"resources lacks the {MAIN} itself"
        if len(uris) < len(files):
            return "resources lists a file twice"
        if not all(uri.startswith(folder) for uri in uris):
            return "resources lists a file outside of the folder of the skill"
        if len(files) > MOST_FILES:
            return f"it has {len(files)} files; at most {MOST_FILES} are allowed"
        size = sum(file.size for file in files)
        return f"it has {size} bytes; at most {MOST_BYTES} are allowed" if size > MOST_BYTES else None


def root_of(uri: str) -> str:
    """The main file's folder."""
    return uri.removesuffix(f"/{MAIN}")


def above(uri: str) -> Iterator[str]:
    """The URI and its parents, nearest first."""
    yield uri
    start, at = uri.find("://") + 3, len(uri)
    while (at := uri.rfind("/", start, at)) >= 0:
        yield uri[:at]


def mime_type(name: str) -> str | None:
    return "text/markdown" if name.lower().endswith(MARKDOWN) else _types().guess_type(name)[0]


def children(files: Iterable[str], folder: str) -> list[JsonObject]:
    """Direct children of a folder (`resources/directory/read`)."""
    names: dict[str, bool] = {}
    for uri in files:
        if uri.startswith(f"{folder}/"):
            name, slash, _ = uri[len(folder) + 1 :].partition("/")
            names[name] = bool(slash)
    return [_child(f"{folder}/{name}", unquote(name), is_folder) for name, is_folder in names.items()]


def _child(uri: str, name: str, is_folder: bool) -> JsonObject:
    kind = DIRECTORY if is_folder else mime_type(name)
    return {"uri": uri, "name": name, **({} if kind is None else {"mimeType": kind})}
