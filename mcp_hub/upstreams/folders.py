"""Folders of skills as upstreams: each folder with a SKILL file is an Agent Skill."""

import base64
import math
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import anyio
import anyio.to_thread
import msgspec
import yaml
from msgspec.structs import replace

from mcp_hub.attach.system import NO_LINK, NO_WAIT
from mcp_hub.call import Call, CallChannel, Gate
from mcp_hub.clock import wall_time
from mcp_hub.errors import RpcError, UnknownEntry, UpstreamUnavailable, method_not_found
from mcp_hub.events import Completed
from mcp_hub.globs import late
from mcp_hub.masking import hide, hide_head
from mcp_hub.notices import Notices
from mcp_hub.protocol.capabilities import SKILLS
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.protocol.skills import MAIN, MOST_BYTES, SkillEntry, above, children, mime_type
from mcp_hub.types import (
    MODERN,
    CacheHint,
    Cause,
    FileStamp,
    JsonObject,
    Kind,
    RawJson,
    Snapshot,
    UpstreamState,
    UpstreamStatus,
)
from mcp_hub.upstreams.local_source import LocalSource
from mcp_hub.upstreams.supervision.server import OwnedUpstream

MOST_FILES: Final = 5000
"""The largest folder of skills."""
_DEEPEST: Final = 16
"""Levels of folders."""
_FLAGS: Final = os.O_RDONLY | NO_LINK | NO_WAIT
"""A pipe that is put there between the look and the opening does not hold up the hub."""


class _TooManyFiles(OSError):
    """Also raised for folders more than `_DEEPEST` deep."""


def files_in(root: Path, limit: int = MOST_FILES) -> dict[str, FileStamp]:
    """Regular files below a real path, by relative path with `/`, sorted; none behind a dot or a link. Raises
    `OSError`.
    """
    stamps: dict[str, FileStamp] = {}
    for path, stamp in _walk(str(root), "", _DEEPEST):
        stamps[path] = stamp
        if len(stamps) > limit:
            raise _TooManyFiles(f"it has more than {limit} files")
    return dict(sorted(stamps.items()))


def _walk(folder: str, prefix: str, depth: int) -> Iterator[tuple[str, FileStamp]]:
    if not depth:
        raise _TooManyFiles(f"its folders are more than {_DEEPEST} deep")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, f"{prefix}{entry.name}/", depth - 1)
            elif entry.is_file(follow_symlinks=False):
                yield prefix + entry.name, stamp_of(entry.stat(follow_symlinks=False))


def stamp_of(status: os.stat_result) -> FileStamp:
    """The fingerprint of a file."""
    return FileStamp(
        device=status.st_dev,
        inode=status.st_ino,
        modified=status.st_mtime_ns,
        changed=status.st_ctime_ns,
        size=status.st_size,
    )


def read_file(root: Path, path: str, limit: int) -> tuple[bytes, FileStamp]:
    """The content and fingerprint of a regular file below a real path.

    Raises `OSError` for links, devices and files of more than `limit` bytes.
    """
    full = os.path.join(str(root), *path.split("/"))
    if not stat.S_ISREG(os.lstat(full).st_mode):
        raise OSError("it is not a regular file")
    with open(os.open(full, _FLAGS), "rb") as file:
        status = os.fstat(file.fileno())
        # looked at after it was opened: whatever is swapped on the way, the open file is the one at the real path
        if os.path.realpath(full) != full or not os.path.samestat(status, os.lstat(full)):
            raise OSError("a link leads to it")
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"it has more than {limit} bytes")
    return content, stamp_of(status)


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


class _Scan(msgspec.Struct, frozen=True):
    """One look at a folder: `files` by path, `paths` by URI, and the lists."""

    files: dict[str, _Digest] = {}
    paths: dict[str, str] = {}
    skills: tuple[bytes, ...] = ()
    resources: tuple[bytes, ...] = ()
    warnings: tuple[str, ...] = ()


def scan(root: Path, before: _Scan) -> _Scan:
    """Scans a real path; reads only files changed since `before`. Blocks. Raises `OSError`."""
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
    return _Scan(
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


_TTL: Final = 5.0
"""Seconds for which lists are kept before the folder is looked at again for somebody who asks."""
_CAPABILITIES: Final[JsonObject] = {"resources": {}, "extensions": {SKILLS: {"directoryRead": True}}}
_HINT: Final = CacheHint(int(_TTL * 1000), public=False)
_LOOKS: Final = 3
"""At a file that changes while it is read."""


def folder_upstream(name: str, folder: str, changes: Notices, gate: Gate | None = None) -> OwnedUpstream:
    """The `gate` checks files changed since they were listed."""
    return _FolderUpstream(name, folder, changes, gate)


class _FolderUpstream(LocalSource):
    def __init__(self, name: str, folder: str, changes: Notices, gate: Gate | None) -> None:
        super().__init__(name, self.run)
        self._folder = folder
        self._changes = changes
        self._gate = gate
        self._scan = _Scan()
        self._snapshot: Snapshot | None = None
        self._problem: Cause | None = None
        self._looked = -math.inf
        self._listed_at: float | None = None
        self._turn = anyio.Lock()

    async def run(self) -> None:
        """Scans the folder once."""
        await self._look(-math.inf)

    def status(self) -> UpstreamStatus:
        if self._problem is not None:
            code, reason = self._problem
            return UpstreamStatus(self.name, UpstreamState.FAILED, reason, code=code)
        state = UpstreamState.STARTING if self._snapshot is None else UpstreamState.READY
        return UpstreamStatus(self.name, state, warnings=self._scan.warnings, listed_at=self._listed_at)

    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def refresh(self, kind: Kind, *, is_new: bool = False) -> Callable[[], Awaitable[None]] | None:
        if kind not in (Kind.SKILL, Kind.RESOURCE) or anyio.current_time() < self._looked + _TTL:
            return None
        requested_at = anyio.current_time()
        return lambda: self._look(requested_at)

    async def _look(self, requested_at: float) -> None:
        """One scan serves all who asked before it began."""
        async with self._turn:
            if self._looked >= requested_at > -math.inf:
                return
            began = anyio.current_time()
            problem, scan = None, _Scan()
            try:
                scan = await anyio.to_thread.run_sync(_scan, self._folder, self._scan)
            except OSError as error:
                problem = Cause("skills_not_found", hide(f"skills {self._folder}: {error.strerror or error}"))
            self._looked, self._listed_at = began, wall_time()
            self._take(scan, problem)

    def _take(self, scan: _Scan, problem: Cause | None) -> None:
        lists = {Kind.SKILL: scan.skills, Kind.RESOURCE: scan.resources}
        fresh = Snapshot(
            server=self.name,
            era=MODERN,
            lists=lists,
            hints={Kind.SKILL: _HINT, Kind.RESOURCE: _HINT},
            capabilities=_CAPABILITIES,
        )
        is_same = fresh == self._snapshot and (problem, scan.warnings) == (self._problem, self._scan.warnings)
        self._scan, self._problem = scan, problem
        if not is_same:
            self._snapshot = fresh
            self._changes.bump()

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """Reads a file or folder. Raises `UnknownEntry`, and as the gate."""
        if self._problem is not None:
            code, reason = self._problem
            data = {"server": self.name, "state": UpstreamState.FAILED.value, "reason": reason, "code": code}
            raise UpstreamUnavailable(f'server "{self.name}" has failed: {reason}', data={"upstream": data})
        if call.method not in ("resources/read", "resources/directory/read", "skills/get"):
            raise method_not_found(f'server "{self.name}" has skills only and does not support {call.method}.')
        uri = msgspec.json.decode(call.params["uri"], type=str)
        if call.method == "resources/read":
            return Completed(await self._contents(call, uri), MODERN)
        entries = children(self._scan.paths, uri) if call.method == "resources/directory/read" else []
        if not entries:
            raise UnknownEntry(f"Not found: {hide_head(uri, 500)}", data={"uri": uri})
        return Completed(object_bytes({"resultType": "complete", "resources": entries}), MODERN)

    async def _contents(self, call: Call, uri: str) -> RawJson:
        for _ in range(_LOOKS):
            if (path := self._scan.paths.get(uri)) is None:
                raise UnknownEntry(f"Resource not found: {hide_head(uri, 500)}", data={"uri": uri})
            try:
                content = await anyio.to_thread.run_sync(_content, self._folder, path)
            except OSError:
                content = None  # it is gone, or is something else now
            if content is not None and digest_of(content) == self._scan.files[path].digest:
                return _result(uri, content)
            await self._look(anyio.current_time())
            self._ask_gate(call, uri)
        raise RpcError(f"{hide_head(uri, 500)} changes while it is read. Try again.")

    def _ask_gate(self, call: Call, uri: str) -> None:
        snapshot = self._snapshot
        if self._gate is None or snapshot is None:
            return
        for folder in above(uri):
            if (main := f"{folder}/{MAIN}") in self._scan.paths:
                params = {"uri": msgspec.Raw(object_bytes(main))}
                self._gate(replace(call, method="skills/get", params=params, exported_uri=None), snapshot, snapshot)


def _scan(folder: str, before: _Scan) -> _Scan:
    return scan(Path(folder).resolve(strict=True), before)


def _content(folder: str, path: str) -> bytes:
    return read_file(Path(folder).resolve(strict=True), path, MOST_BYTES)[0]


def _result(uri: str, content: bytes) -> bytes:
    contents: JsonObject = {"uri": uri}
    if (kind := mime_type(uri)) is not None:
        contents["mimeType"] = kind
    try:
        contents["text"] = content.decode()
    except UnicodeDecodeError:
        contents["blob"] = base64.b64encode(content).decode()
    return object_bytes({"resultType": "complete", "contents": [contents]})
