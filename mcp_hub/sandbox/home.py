"""A sandboxed server's private home, with the user's settings of package indexes, for all processes and starts.

The server only reads `settings`. Credentials are copied only for indexes that the user chose.
"""

import configparser
import errno
import hashlib
import os
import re
import sys
import threading
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import msgspec

from mcp_hub.addresses import HostRule, host_rule
from mcp_hub.aio import ServerThread
from mcp_hub.attach.folder import make_folder, make_private
from mcp_hub.attach.system import lock
from mcp_hub.clock import Clock, SystemClock
from mcp_hub.files import is_larger, read_file, remove_tree
from mcp_hub.logs import get_logger

log = get_logger(__name__)

_LONGEST: Final = 1 << 16
_NPM_KEYS: Final = frozenset(
    ("registry", "proxy", "https-proxy", "noproxy", "cafile", "ca", "ca[]", "strict-ssl", "always-auth", "nodedir")
)
_PUBLIC: Final = frozenset(
    ("registry.npmjs.org", "registry.yarnpkg.com", "npm.pkg.github.com", "pypi.org", "upload.pypi.org", "test.pypi.org")
)
"""Indexes that need credentials only to publish."""
_UV_KEYS: Final = (
    *("index-url", "extra-index-url", "find-links", "no-index", "native-tls", "system-certs", "allow-insecure-host"),
    "index-strategy",
)
_UV_INDEX: Final = ("name", "url", "default", "explicit", "format")
_PIP_KEYS: Final = frozenset(
    ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "cert", "proxy", "timeout")
)
_CREDENTIAL: Final = re.compile(r"//(?P<host>[^/:]+)(?P<rest>[^=]*):(?:_authToken|_auth|username|_password|email)\s*=")
_URL: Final = re.compile(r"https?://[^\s'\",]+")
_INDEXES: Final = (
    (
        frozenset(("npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "bun")),
        ("NPM_CONFIG_REGISTRY", "npm_config_registry", "BUN_CONFIG_REGISTRY", "YARN_NPM_REGISTRY_SERVER"),
        ("npmrc",),
        ("https://registry.npmjs.org",),
    ),
    (
        frozenset(("uvx", "uv", "pipx", "pip")),
        ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"),
        ("uv.toml", "pip.conf"),
        ("https://pypi.org", "https://files.pythonhosted.org"),
    ),
)
"""Package runners, with variables, settings and default URLs of their indexes."""
_MOST: Final = 4 << 30
"""Bytes of a private home above which caches are emptied."""
_MEASURING: Final = 600.0
"""Seconds between measurements."""
_INSTALLING: Final = 60.0
"""Seconds that a first start waits for others."""
_INSTALLED: Final = "installed"
"""The file with marks of the last 64 commands that became ready."""
_RUNNERS: Final = frozenset(program for programs, *_ in _INDEXES for program in programs)
_LOOK: Final = 0.05
"""Seconds between looks at another hub's lock."""
_MOST_ENTRIES: Final = 500_000
_CACHES: Final = ("home/.npm", "home/.cache", "tmp", _INSTALLED)


class PrivateHome(msgspec.Struct, frozen=True):
    """One server's folders below `folder`."""

    folder: str

    @property
    def home(self) -> str:
        return os.path.join(self.folder, "home")

    @property
    def temporary(self) -> str:
        return os.path.join(self.folder, "tmp")

    @property
    def settings(self) -> str:
        return os.path.join(self.folder, "settings")

    def make(self, home: str, env: Mapping[str, str]) -> None:
        """Makes folders; copies settings from `home`. Raises `OSError`."""
        make_private(self.folder)
        for folder in (self.home, self.temporary, self.settings):
            make_folder(folder)
        for name, text in self._files(home, env).items():
            self._write(name, text)

    def variables(self) -> dict[str, str]:
        """Environment for these folders."""
        below = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
        return {
            "HOME": self.home,
            **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), self.temporary),
            **{f"XDG_{name}_HOME": os.path.join(self.home, folder) for name, folder in below.items()},
            "NPM_CONFIG_USERCONFIG": os.path.join(self.settings, "npmrc"),
            "NPM_CONFIG_UPDATE_NOTIFIER": "false",
            "UV_CONFIG_FILE": os.path.join(self.settings, "uv.toml"),
            "PIP_CONFIG_FILE": os.path.join(self.settings, "pip.conf"),
        }

    def trusted(self) -> Iterator[str]:
        """Certificate files in the settings."""
        for name in ("npmrc", "pip.conf"):
            path = os.path.join(self.settings, name)
            for line in Path(path).read_text().splitlines() if os.path.isfile(path) else ():
                key, _, value = line.partition("=")
                if key.strip() in ("cafile", "cert") and os.path.isabs(value.strip()):
                    yield value.strip()

    def index_hosts(self, program: str, env: Mapping[str, str]) -> Iterator[HostRule]:
        """Hosts from which a package runner such as `npx` downloads."""
        name = os.path.basename(program).partition(".")[0]
        for programs, variables, files, usual in _INDEXES:
            if name not in programs:
                continue
            texts = [env[variable] for variable in variables if variable in env]
            texts += [_text(os.path.join(self.settings, file)) for file in files]
            chosen = [url for text in texts for url in _URL.findall(text)]
            for url in chosen or usual:
                with suppress(ValueError):
                    parts = urlsplit(url)
                    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
                    rule = host_rule(f"{host}:{parts.port or (80 if parts.scheme == 'http' else 443)}")
                    yield HostRule(rule.host, rule.ports, is_private=bool(chosen))

    def remove(self) -> bool:
        """Removes it unless in use; whether it is gone. Takes seconds."""
        with suppress(OSError), self.hold(shared=False):
            remove_tree(self.folder)
        return not os.path.lexists(self.folder)

    def trim(self) -> bool:
        """Empties too large caches; False if it stays large. Raises `OSError`.

        Takes seconds, while the server does not run. Does nothing while a hub holds the folder.
        """
        with suppress(FileNotFoundError, BlockingIOError), self.hold(shared=False):
            return self._trimmed()
        return True

    @contextmanager
    def hold(self, *, shared: bool = True) -> Iterator[None]:
        """Keeps hubs from emptying the caches during the block. Raises `OSError`."""
        with _locked(self.folder, is_folder=True, shared=shared):
            yield

    @contextmanager
    def install(self, mark: str) -> Iterator[None]:
        """Excludes other installing starts, then writes `mark`. Raises `OSError`.

        After a broken block npx's packages are removed: npm takes partial ones for whole.
        """
        with _locked(os.path.join(self.folder, _INSTALLED), is_folder=False, shared=False) as file:
            if not _marked(file, f"{mark} begun"):
                with suppress(OSError), self.hold(shared=False):
                    self._remove_packages()
            yield
            with suppress(OSError):
                _marked(file, mark, f"{mark} begun")

    def _remove_packages(self) -> None:
        removed = os.path.join(self.folder, f"removed-{os.getpid()}")
        with _locked(os.path.join(self.home, ".npm"), is_folder=True, shared=True) as npm:
            os.rename("_npx", removed, src_dir_fd=npm)
        remove_tree(removed)

    def is_large(self) -> bool:
        """Whether it exceeds its limit. Takes seconds, in a thread."""
        return is_larger(self.folder, _MOST, _MOST_ENTRIES)

    def _trimmed(self) -> bool:
        if self.is_large():
            for cache in _CACHES:
                with suppress(OSError):
                    remove_tree(os.path.join(self.folder, cache))
            make_folder(self.temporary)
            return not self.is_large()
        return True

    def _files(self, home: str, env: Mapping[str, str]) -> dict[str, str]:
        config = env.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
        npm = env.get("NPM_CONFIG_USERCONFIG") or os.path.join(home, ".npmrc")
        uv = env.get("UV_CONFIG_FILE") or os.path.join(config, "uv", "uv.toml")
        pip = [env.get("PIP_CONFIG_FILE"), os.path.join(config, "pip", "pip.conf"), os.path.join(home, ".pip/pip.conf")]
        return {
            "npmrc": npm_settings(_text(npm)),
            "uv.toml": uv_settings(_text(uv)),
            "pip.conf": pip_settings("\n".join(_text(path) for path in pip if path)),
        }

    def _write(self, name: str, text: str) -> None:
        if sys.platform == "win32":
            raise NotImplementedError
        path = os.path.join(self.settings, name)
        if os.path.isfile(path) and Path(path).read_text() == text:
            return
        draft = f"{path}.{os.getpid()}-{threading.get_ident()}"
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(text)
        os.replace(draft, path)


class HomeCare:
    """Keeps one private home small, in a thread; `names` is the thread for a process's paths."""

    def __init__(self, server: str, private: PrivateHome, clock: Clock | None = None) -> None:
        self.is_large = False
        self._server = server
        self._private = private
        self._clock = clock or SystemClock()
        self._is_tidy = False
        self._measured = self._clock.now()
        self.in_thread = ServerThread().run
        self.names = ServerThread()

    async def tidy(self) -> None:
        """Trims it before this hub's first start."""
        if not self._is_tidy:
            await self.in_thread(self._tidy)

    @asynccontextmanager
    async def first(self, argv: Sequence[str]) -> AsyncIterator[None]:
        """Runs package runners' first starts one by one, each waiting at most `_INSTALLING` seconds.

        npm before 11 damages a folder with two installations.
        """
        with ExitStack() as stack:
            if any(os.path.basename(word) in _RUNNERS for text in argv for word in text.split()):
                mark = hashlib.sha256("\0".join(argv).encode("utf-8", "surrogateescape")).hexdigest()
                with anyio.move_on_after(_INSTALLING):
                    while not await self.in_thread(partial(self._may_install, mark, stack)):  # noqa: ASYNC110 - see `run`
                        await anyio.sleep(_LOOK)
            yield

    async def run(self) -> None:
        """Holds and measures the home until cancelled."""
        with ExitStack() as stack:
            while not _entered(stack, self._private.hold()):  # noqa: ASYNC110 - another hub does not say when it is done
                await anyio.sleep(_LOOK)
            while True:
                await anyio.sleep(_MEASURING)
                await self.in_thread(self._measure)

    def _may_install(self, mark: str, stack: ExitStack) -> bool:
        marks = _text(os.path.join(self._private.folder, _INSTALLED)).splitlines()
        return mark in marks or _entered(stack, self._private.install(mark))

    def _tidy(self) -> None:
        with suppress(OSError):
            if not self._is_tidy:
                self._note(not self._private.trim())
        self._is_tidy = True

    def _measure(self) -> None:
        if (now := self._clock.now()) - self._measured >= _MEASURING:
            self._measured = now
            self._note(self._private.is_large())

    def _note(self, is_large: bool) -> None:
        if is_large and not self.is_large:
            log.warning("sandbox_home_large", upstream=self._server, folder=self._private.folder)
        self.is_large = is_large


def _entered(stack: ExitStack, lock: AbstractContextManager[None]) -> bool:
    """False only while another holds the lock."""
    try:
        stack.enter_context(lock)
    except OSError as problem:
        return not isinstance(problem, BlockingIOError)
    return True


def npm_settings(text: str) -> str:
    """An `.npmrc`'s index, proxy, certificates, and chosen indexes' credentials."""
    chosen, hosts = [], set[str]()
    for line in map(str.strip, text.splitlines()):
        key, equals, value = line.partition("=")
        key = key.strip()
        if equals and (key in _NPM_KEYS or re.fullmatch(r"@[\w.~-]+:registry", key)):
            chosen.append(line)
            if key.endswith("registry"):
                hosts.add(_host(value.strip()))
    hosts -= _PUBLIC
    credentials = ((_CREDENTIAL.match(line), line) for line in map(str.strip, text.splitlines()))
    chosen += [line for match, line in credentials if match is not None and match["host"] in hosts]
    return "".join(f"{line}\n" for line in chosen)


def uv_settings(text: str) -> str:
    """A `uv.toml`'s indexes and ways to them."""
    try:
        settings = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return ""
    lines = [f"{key} = {_toml(settings[key])}" for key in _UV_KEYS if _is_plain(settings.get(key))]
    indexes = settings.get("index")
    for index in indexes if isinstance(indexes, list) else []:
        if isinstance(index, dict):
            lines += ["[[index]]", *(f"{key} = {_toml(index[key])}" for key in _UV_INDEX if _is_plain(index.get(key)))]
    return "".join(f"{line}\n" for line in lines)


def pip_settings(text: str) -> str:
    """A `pip.conf`'s indexes and ways to them."""
    parser = configparser.RawConfigParser(strict=False, default_section="")
    try:
        parser.read_string(text)
    except (configparser.Error, ValueError):
        return ""
    lines = []
    for section in ("global", "install"):
        if parser.has_section(section):
            items = [(key, value) for key, value in parser.items(section) if key in _PIP_KEYS and value is not None]
            lines += [f"[{section}]", *(f"{key} = {value.replace(chr(10), chr(10) + '    ')}" for key, value in items)]
    return "".join(f"{line}\n" for line in lines)


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_plain(value: object) -> bool:
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return is_list or isinstance(value, str | bool)


def _toml(value: object) -> str:
    return msgspec.json.encode(value).decode()  # JSON's texts, flags and lists of texts are TOML's, too


def _text(path: str) -> str:
    if not os.path.isfile(path):
        return ""
    try:
        return read_file(path, _LONGEST).data.decode("utf-8", "replace")
    except OSError:
        return ""


@contextmanager
def _locked(path: str, *, is_folder: bool, shared: bool) -> Iterator[int]:
    if sys.platform == "win32":
        raise NotImplementedError
    flags = os.O_RDONLY | os.O_DIRECTORY if is_folder else os.O_RDWR | os.O_CREAT
    file = os.open(path, flags | os.O_NOFOLLOW, 0o600)
    try:
        if not lock(file, shared=shared):
            raise BlockingIOError(errno.EWOULDBLOCK, "another hub uses it", path)
        yield file
    finally:
        os.close(file)


def _marked(file: int, mark: str, replaced: str = "") -> bool:
    if sys.platform == "win32":
        raise NotImplementedError
    marks = os.pread(file, _LONGEST, 0).decode("ascii", "replace").splitlines()
    if mark in marks:
        return False
    lines = [line for line in marks if line != replaced][-63:]
    os.ftruncate(file, 0)
    os.pwrite(file, "".join(f"{line}\n" for line in [*lines, mark]).encode(), 0)
    return True
