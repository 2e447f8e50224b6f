"""A `server.json` (schema 2025-12-11 of the MCP registry) as an entry of `servers.yaml`. Pure."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.types import JsonObject

_RUNTIMES: Final = {"npm": ("npx", "bunx"), "pypi": ("uvx",), "oci": ("docker", "podman")}
"""The programs that may start a package, by `registryType`; the first is the usual one."""
_NAME: Final = re.compile(r"[A-Za-z0-9@][\w.@/:+-]*")
_VERSION: Final = re.compile(r"[A-Za-z0-9][\w.+!-]*")
_VARIABLE: Final = re.compile(r"\{([^{}]+)\}")


class RegistryInput(msgspec.Struct, frozen=True, rename="camel"):
    """A value: fixed, with a default, or of the person; `value` may have `{names}` of `variables`.

    `name` is that of a variable, a header or a flag; `value_hint` that of an argument without a flag.
    """

    name: str | None = None
    type: str | None = None
    value: str | None = None
    default: str | None = None
    is_required: bool = False
    is_secret: bool = False
    format: str = "string"
    value_hint: str | None = None
    variables: "dict[str, RegistryInput]" = {}


class RegistryTransport(msgspec.Struct, frozen=True):
    """The transport of a package, or a remote server."""

    type: str
    url: str | None = None
    headers: list[RegistryInput] = []
    variables: dict[str, RegistryInput] = {}


class RegistryPackage(msgspec.Struct, frozen=True, rename="camel"):
    """A package that can be started."""

    registry_type: str
    identifier: str
    transport: RegistryTransport
    version: str | None = None
    runtime_hint: str | None = None
    runtime_arguments: list[RegistryInput] = []
    package_arguments: list[RegistryInput] = []
    environment_variables: list[RegistryInput] = []


class ServerDetail(msgspec.Struct, frozen=True):
    """The whole document."""

    name: str
    packages: list[RegistryPackage] = []
    remotes: list[RegistryTransport] = []

    @property
    def short_name(self) -> str:
        """The part of the name that says what the server is."""
        return self.name.rpartition("/")[2] or self.name


def parse_server_json(content: bytes, place: str) -> ServerDetail:
    """The document, also as a registry wraps it (`{"server": …}`). Raises `ConfigError`."""
    try:
        data = msgspec.json.decode(content)
        if isinstance(data, dict) and isinstance(data.get("server"), dict):
            data = data["server"]
        return msgspec.convert(data, ServerDetail)
    except (msgspec.MsgspecError, RecursionError) as problem:
        said = f"is not a server.json: {problem}. To add the MCP server at a URL: mcp-hub add NAME URL"
        raise ConfigError(ConfigFinding("invalid_server_json", said, place)) from None


def entry_of(detail: ServerDetail, given: Mapping[str, str], *, is_remote: bool = False) -> JsonObject:
    """The entry: of the first package that can be started here, else, or with `is_remote`, of the first remote.

    `given` are values of the person by the name of a variable, header, flag or argument; they may have `${…}`. A
    variable or header that is needed and not given is the environment variable of its name. Raises `ConfigError`.
    """
    packages = [package for package in detail.packages if _is_supported(package)]
    if packages and not (is_remote and detail.remotes):
        return _of_package(packages[0], given)
    remote = next((one for one in detail.remotes if one.url and one.type in ("streamable-http", "sse")), None)
    if remote is None:
        kinds = ", ".join(sorted({package.registry_type for package in detail.packages})) or "none"
        said = f"{detail.name} has no package that the hub can start (npm, pypi, oci over stdio) and no remote: {kinds}"
        raise ConfigError(ConfigFinding("unsupported_package", said))
    return _of_remote(remote, given)


def _is_supported(package: RegistryPackage) -> bool:
    return package.registry_type in _RUNTIMES and package.transport.type == "stdio"


def _of_package(package: RegistryPackage, given: Mapping[str, str]) -> JsonObject:
    programs = _RUNTIMES[package.registry_type]
    program = package.runtime_hint or programs[0]
    if program not in programs:
        said = (
            f"runtimeHint {program!r} is not one of {', '.join(programs)}. Add the server with: mcp-hub add NAME -- …"
        )
        raise ConfigError(ConfigFinding("unsupported_package", said))
    env = dict(_named(package.environment_variables, given, "${{{}}}".format))
    runtime = _arguments(package.runtime_arguments, given)
    args = [*_start(package.registry_type, runtime, env), _identifier(package)]
    args += _arguments(package.package_arguments, given)
    return {"command": program, "args": args, **({"env": env} if env else {})}


def _start(kind: str, runtime: list[str], env: Mapping[str, str]) -> list[str]:
    """The arguments of the runtime before the package."""
    if kind == "npm":
        return runtime if {"-y", "--yes"} & {*runtime} else ["-y", *runtime]
    if kind == "pypi":
        return runtime
    passed = [word for name in env for word in ("-e", name)]
    return [*runtime, *passed] if "run" in runtime else ["run", "-i", "--rm", *runtime, *passed]


def _identifier(package: RegistryPackage) -> str:
    name, version = package.identifier, package.version
    if not _NAME.fullmatch(name) or version is not None and not _VERSION.fullmatch(version):
        said = f"{name!r} {version or ''} is not the name and the version of a package"
        raise ConfigError(ConfigFinding("invalid_server_json", said))
    match package.registry_type:
        case _ if version is None:
            return name
        case "npm":
            return f"{name}@{version}"
        case "pypi":
            return f"{name}=={version}"
        case _:
            return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:{version}"


def _of_remote(remote: RegistryTransport, given: Mapping[str, str]) -> JsonObject:
    url = _filled(remote.url or "", remote.variables, given)
    headers = dict(_named(remote.headers, given, _variable))
    kind = {"type": "sse"} if remote.type == "sse" else {}
    return {"url": url, **kind, **({"headers": headers} if headers else {})}


def _named(
    inputs: Sequence[RegistryInput], given: Mapping[str, str], outside: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """Variables or headers with their values; those without a value that nobody needs are left out.

    `outside` makes the `${…}` for a name.
    """
    for one in inputs:
        if one.name is None:
            continue
        value = _value(one, one.name, given)
        if value is None and (one.is_required or one.is_secret):
            value = outside(one.name)
        if value is not None:
            yield one.name, value


def _arguments(inputs: Sequence[RegistryInput], given: Mapping[str, str]) -> list[str]:
    done: list[str] = []
    for one in inputs:
        label = one.name or one.value_hint or "value"
        value = _value(one, label, given)
        if one.type != "named":
            if value is None and one.is_required:
                raise _missing(label)
            done += [] if value is None else [value]
        elif one.format == "boolean":
            done += [label] if value == "true" else []
        elif value is not None:
            done += [label, value]
        elif one.is_required:
            raise _missing(label)
    return done


def _value(one: RegistryInput, label: str, given: Mapping[str, str]) -> str | None:
    if one.value is not None:  # not for the person to choose
        return _filled(one.value, one.variables, given)
    if label in given:
        return given[label]
    return None if one.default is None else _literal(one.default)


def _filled(template: str, variables: Mapping[str, RegistryInput], given: Mapping[str, str]) -> str:
    """The text with its `{names}` filled in; a name that nobody explains stays as it is."""
    done, at = "", 0
    for found in _VARIABLE.finditer(template):
        if (variable := variables.get(found[1])) is None:
            continue
        value = _value(variable, found[1], given)
        done += _literal(template[at : found.start()]) + (_variable(found[1]) if value is None else value)
        at = found.end()
    return done + _literal(template[at:])


def _literal(text: str) -> str:
    """The text of a stranger, in which no `${…}` is looked up."""
    return text.replace("${", "$${")


def _variable(name: str) -> str:
    """The environment variable for a value that is to come from outside: `X-Api-Key` → `${X_API_KEY}`."""
    return f"${{{re.sub(r'[^A-Za-z0-9]', '_', name).strip('_').upper()}}}"


def _missing(label: str) -> ConfigError:
    said = f"the server needs a value for {label}. Give it with: --set {label}=VALUE"
    return ConfigError(ConfigFinding("missing_parameter", said))
