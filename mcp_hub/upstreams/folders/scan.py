"""The skills in a folder, also listed as resources."""

import re
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import msgspec
import yaml

from mcp_hub.globs import late
from mcp_hub.masking import hide_head
from mcp_hub.protocol.skills import MAIN, MOST_BYTES, SkillEntry, mime_type
from mcp_hub.types import FileStamp, JsonObject
from mcp_hub.upstreams.folders.tree import files_in, read_file

_SCHEME: Final = "skill://"
_NAME: Final = late(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
"""Names of skills (Agent Skills specification, "name")."""
_HEAD: Final = late(rb"\A(?:\xef\xbb\xbf)?---\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_LONGEST_HEAD: Final = 64 << 10
_MOST_WARNINGS: Final = 20
_UNKNOWN: Final = f"sha256:{'0' * 64}"


class _Digest(msgspec.Struct, frozen=True):
    stamp: FileStamp
    digest: str
    size: int
    head: bytes | None = None


class Scan(msgspec.Struct, frozen=True):
    """One look at a folder: `files` by path, `paths` by URI, and the lists."""

    files: dict[str, _Digest] = {}
    paths: dict[str, str] = {}
    skills: tuple[bytes, ...] = ()
    resources: tuple[bytes, ...] = ()
    warnings: tuple[str, ...] = ()


def scan(root: Path, before: Scan) -> Scan:
    """Scans a real path; reads only files that changed since `before`. Blocks. Raises `OSError`."""
    warnings: list[str] = []
    files: dict[str, _Digest] = {}
    for path, stamp in files_in(root).items():
        previous = before.files.get(path)
        try:
            files[path] = previous if previous is not None and previous.stamp == stamp else _digest(root, path, stamp)
        except (OSError, UnicodeError) as problem:
            warnings.append(f"{ascii(path)} is left out: {problem}")
    skills: dict[str, bytes] = {}
    for path in files:
        if path == MAIN:
            warnings.append(f"{MAIN} is left out: a skill needs a folder of its own")
        elif path.endswith(f"/{MAIN}"):
            try:
                skills[path.removesuffix(MAIN)] = _entry(path, files)
            except ValueError as problem:  # msgspec's errors are such
                warnings.append(f"skill {ascii(path.removesuffix(f'/{MAIN}'))} is left out: {problem}")
    served = [path for path in files if path.startswith(tuple(skills))]
    return Scan(
        files=files,
        paths={uri_of(path): path for path in served},
        skills=tuple(skills.values()),
        resources=tuple(_resource(path, files, skills) for path in served),
        warnings=tuple(hide_head(text, 500).replace("\n", " ") for text in warnings[:_MOST_WARNINGS]),
    )


def uri_of(path: str) -> str:
    """The URI of a file. Raises `UnicodeError` for a name that is not text."""
    return _SCHEME + quote(path, safe="/!$&'()*+,;=~", errors="strict")


def _digest(root: Path, path: str, stamp: FileStamp) -> _Digest:
    uri_of(path)
    if stamp.size > MOST_BYTES:  # its skill is too large, whatever is in it
        return _Digest(stamp, _UNKNOWN, stamp.size)
    content, stamp = read_file(root, path, MOST_BYTES)
    head = None
    if path.endswith(f"/{MAIN}") and (match := _HEAD.match(content)):
        head = match[1]
    return _Digest(stamp, digest_of(content), len(content), head)


def digest_of(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def _entry(main: str, files: dict[str, _Digest]) -> bytes:
    folder = main.removesuffix(MAIN)
    head = files[main].head
    if head is None or len(head) > _LONGEST_HEAD:
        raise ValueError(f"its {MAIN} does not begin with YAML between two lines of ---, of at most 64 KiB")
    if not _NAME.fullmatch(folder.rstrip("/").rpartition("/")[2]):
        raise ValueError("the name of its folder may have a-z, 0-9 and single hyphens only, and at most 64 of them")
    inside = {path: entry for path, entry in files.items() if path.startswith(folder)}
    resources = [{"uri": uri_of(path), "digest": entry.digest, "size": entry.size} for path, entry in inside.items()]
    raw = msgspec.json.encode({"uri": uri_of(main), "frontmatter": _frontmatter(head), "resources": resources})
    msgspec.json.decode(raw, type=SkillEntry)
    return raw


def _frontmatter(head: bytes) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(yaml.load(head, _Yaml)))
    except Exception as problem:  # the boundary to the YAML library: a tag may make it raise anything
        raise ValueError(f"its YAML cannot be read: {problem}") from None


def _resource(path: str, files: dict[str, _Digest], skills: dict[str, bytes]) -> bytes:
    name = path.rpartition("/")[2]
    resource: JsonObject = {"uri": uri_of(path), "name": name, "size": files[path].size}
    if (kind := mime_type(name)) is not None:
        resource["mimeType"] = kind
    if (skill := skills.get(path.removesuffix(MAIN))) is not None and name == MAIN:
        frontmatter = msgspec.json.decode(skill, type=SkillEntry).frontmatter
        resource |= {"name": frontmatter.name, "description": frontmatter.description}
    return msgspec.json.encode(resource)


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, firsts, pattern in (
        ("bool", "tTfF", r"true|True|TRUE|false|False|FALSE"),
        ("null", ("~", "n", "N", ""), r"~|null|Null|NULL|"),
        ("int", "-+0123456789", r"[-+]?(?:0|[1-9][0-9]{0,15})"),
        ("float", "-+.0123456789", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"),
    ):
        for first in firsts:
            resolvers.setdefault(first, []).append((f"tag:yaml.org,2002:{tag}", late(rf"(?:{pattern})\Z")))
    return resolvers


class _Yaml(yaml.SafeLoader):
    """The YAML 1.2 core schema, without aliases: dates and `yes` are text."""

    yaml_implicit_resolvers = _resolvers()

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed")
        return super().compose_node(parent, index)
