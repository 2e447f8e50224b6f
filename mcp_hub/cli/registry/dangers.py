"""Parts of a registry's command that can run other code than the package, or reach this machine. Pure.

Every argument of a runtime is such a part unless the tables below have it: each version of a runtime has new options.
Not here: the package itself, which runs with the user's rights anyway.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from mcp_hub.cli.registry.server_json import RegistryCommand

_WORD: Final = r"[A-Za-z0-9][A-Za-z0-9_.:-]*"
_NUMBER: Final = r"[0-9][0-9.]*[A-Za-z]{0,2}"
_VARIABLE: Final = r"[A-Za-z_][A-Za-z0-9_]*(=.*)?"
_FLAGS: Final[Mapping[str, Collection[str]]] = {
    "npm": "-y --yes -q --quiet --silent --prefer-offline --prefer-online --offline --no-install --bun".split(),
    "pypi": "-q --quiet -v --verbose --no-progress --isolated --refresh --no-cache -n --offline".split(),
    "oci": "-i --interactive -t --tty -it -ti --rm --init --read-only".split(),
}
_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "npm": {},
    "pypi": dict.fromkeys(("-p", "--python"), r"[0-9][0-9.]*"),
    "oci": {
        **dict.fromkeys(("-e", "--env"), _VARIABLE),
        **dict.fromkeys(("-m", "--memory", "--memory-swap", "--cpus", "--pids-limit", "--shm-size"), _NUMBER),
        **dict.fromkeys(("--name", "-h", "--hostname", "-l", "--label"), rf"{_WORD}(={_WORD})?"),
        **dict.fromkeys(("-u", "--user"), r"[0-9]+(:[0-9]+)?"),
        **dict.fromkeys(("-w", "--workdir"), r"/[A-Za-z0-9_./-]*"),
        "--network": r"none|bridge",
        "--net": r"none|bridge",
        "--pull": r"always|missing|never",
        "--platform": r"[a-z0-9]+/[a-z0-9]+(/[a-z0-9]+)?",
        "--cap-drop": r"[A-Za-z_]+",
        "--security-opt": r"no-new-privileges(:true)?",
    },
}
"""Options of a runtime that run nothing else, with the form of their values."""
_MOUNTS: Final = frozenset(("-v", "--volume", "--mount"))
_VOLUME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_MOUNT: Final = re.compile(
    r"(type=(?:bind|volume)|(?:dst|destination|target)=[^\",=]+|readonly|ro)|(?:src|source)=([^\",=]+)"
)
"""A member of `--mount` that is harmless, or names the source."""
_PACKAGES: Final = {
    "npm": re.compile(r"(@[A-Za-z0-9_-][\w.-]*/)?[A-Za-z0-9_-][\w.-]*(@[\w.+-]+)?", re.ASCII),
    "pypi": re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.-]*\])?((==|@)[\w.+!-]+)?", re.ASCII),
    "oci": re.compile(r"[a-z0-9][\w.-]*(:[0-9]+)?(/[\w.-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?", re.ASCII),
}
"""Names in a registry of packages; everything else is a URL, a repository, a file or a folder."""
_ARCHIVE: Final = re.compile(r"\.(tgz|tar|gz|bz2|xz|zip|whl|mjs|cjs|js|ts|py)$", re.IGNORECASE)
_INTERPRETER: Final = re.compile(
    r"(node|npm|npx|pnpm|yarn|bun|bunx|deno|ts-node|tsx|zx|shx|sh|bash|zsh|cmd|powershell|pwsh"
    r"|python[0-9.]*|pypy[0-9.]*|cpython.*|pip|pipx|uv|uvx|ipython|exec|run)",
    re.IGNORECASE,
)
"""Packages that run the code in their arguments."""
_CONTROLS: Final = re.compile(
    r"PATH|HOME|SHELL|IFS|ENV|BASH_ENV|PROMPT_COMMAND|EDITOR|VISUAL|PAGER|BROWSER|TMPDIR|TMP|TEMP|VIRTUAL_ENV"
    r"|(LD|DYLD|NPM_CONFIG|NPM|BUN|UV|PIP|DOCKER|CONTAINER|CONTAINERS|PODMAN|BUILDKIT|XDG|GIT|SSH|PERL5|RUBY|JAVA|JDK"
    r"|MCP_HUB|GCONV|MALLOC|GLIBC)_?.*"
    r"|NODE_(?!ENV$).*|PYTHON(?!UNBUFFERED$|IOENCODING$|UTF8$|DONTWRITEBYTECODE$|WARNINGS$).*|_JAVA_OPTIONS"
    r"|SSL_CERT_.*|(REQUESTS|CURL)_CA_BUNDLE|.*_PROXY",
    re.IGNORECASE,
)
"""Environment variables that decide what a runtime loads, and from where."""


def dangers_of(command: RegistryCommand, given: Mapping[str, str]) -> list[str]:
    """A sentence for each dangerous part, in the order of the command. `given` are values of the person."""
    values = {*given.values()}
    return [
        *_variables(command.env, values),
        *_runtime(command, values),
        *_package(command),
    ]


def _variables(env: Mapping[str, str], values: Collection[str]) -> Iterator[str]:
    for name, value in env.items():
        if _CONTROLS.fullmatch(name) and value not in values:
            yield f"{name} decides what the program loads"


def _runtime(command: RegistryCommand, values: Collection[str]) -> Iterator[str]:
    words = command.runtime[1:] if command.kind == "oci" else command.runtime
    flags, options = _FLAGS[command.kind], _OPTIONS[command.kind]
    index = 0
    while index < len(words):
        word, option, value = _option(words, index)
        index += 1
        if word in flags:
            continue
        if option in options or command.kind == "oci" and option in _MOUNTS:
            index += option == word
            if _is_harmless(option, value, options, values):
                continue
            word = f"{option} {value}"
        yield f"{word}: {command.program} can run other code with it, or reach files of this machine"


def _option(words: Sequence[str], index: int) -> tuple[str, str, str]:
    """The word, and the option in it with its value, which may be the next word."""
    word = words[index]
    option, equals, value = word.partition("=")
    if not equals or not option.startswith("--"):
        return word, word, words[index + 1] if index + 1 < len(words) else ""
    return word, option, value


def _is_harmless(option: str, value: str, options: Mapping[str, str], values: Collection[str]) -> bool:
    if option not in _MOUNTS:
        return re.fullmatch(options[option], value, re.DOTALL) is not None
    sources = [value.split(":")[0]]
    if option == "--mount":
        members = [_MOUNT.fullmatch(text) for text in value.split(",")]
        sources = ["" if member is None else member[2] for member in members if member is None or member[2]]
    return all(source in values or _VOLUME.fullmatch(source) for source in sources)


def _package(command: RegistryCommand) -> Iterator[str]:
    name = command.identifier
    if not _PACKAGES[command.kind].fullmatch(name) or command.kind != "oci" and _ARCHIVE.search(name):
        yield f"{name}: it is not a package of a registry, but a URL, a repository, a file or a folder"
    elif command.kind != "oci" and _INTERPRETER.fullmatch(re.split(r"[@=\[]", name)[0]):
        yield f"{name}: it runs the code in its arguments"
