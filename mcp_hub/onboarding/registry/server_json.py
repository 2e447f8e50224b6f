"""A `server.json` (MCP registry, schema 2025-12-11) as an entry of `servers.yaml`. Pure."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from mcp_hub.config.load.imported import Input
from mcp_hub.config.load.interpolate import Reference, Unresolved, is_variable_name, joined, split_text
from mcp_hub.config.load.locate import line_of_half
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.masking import hide_head
from mcp_hub.types import JsonObject

_RUNTIMES: Final = {"npm": ("npx", "bunx"), "pypi": ("uvx",), "oci": ("docker", "podman")}
"""Programs that start a package, by `registryType`; the first is the default."""
_NAME: Final = re.compile(r"[A-Za-z0-9@./~][!-~]*")
"""A package, in the widest sense also a URL or path, but not an option."""
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+!-]*")
_VARIABLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_LONGEST: Final = 8192
"""Characters of a command, URL or header that a person has to read."""


class _Input(msgspec.Struct, frozen=True, rename="camel"):
    """A value: fixed, a default, or the person's; may contain `{names}` of `variables`.

    `name`: a variable, header or flag; `value_hint`: an argument without flag.
    """

    name: str | None = None
    type: str | None = None
    value: str | None = None
    default: str | None = None
    is_required: bool = False
    is_secret: bool = False
    format: str = "string"
    value_hint: str | None = None
    description: str | None = None
    variables: "dict[str, _Input]" = {}


class _Transport(msgspec.Struct, frozen=True):
    type: str
    url: str | None = None
    headers: list[_Input] = []
    variables: dict[str, _Input] = {}


class _Package(msgspec.Struct, frozen=True, rename="camel"):
    """A package to start."""

    registry_type: str
    identifier: str
    transport: _Transport
    version: str | None = None
    runtime_hint: str | None = None
    runtime_arguments: list[_Input] = []
    package_arguments: list[_Input] = []
    environment_variables: list[_Input] = []


class ServerDetail(msgspec.Struct, frozen=True, rename={"schema": "$schema", "website_url": "websiteUrl"}):
    """The whole document; `status` is the word of a registry, if it has one."""

    name: str
    packages: list[_Package] = []
    remotes: list[_Transport] = []
    title: str | None = None
    description: str | None = None
    version: str | None = None
    website_url: str | None = None
    schema: str | None = None
    status: str | None = None

    @property
    def short_name(self) -> str:
        return self.name.rpartition("/")[2] or self.name

    @property
    def kinds(self) -> list[str]:
        """Ways to add it: `url`, and the kinds of its packages."""
        kinds = [package.registry_type for package in self.packages if _is_supported(package)]
        return [*(["url"] if _remote_of(self) is not None else []), *dict.fromkeys(kinds)]

    @property
    def secret_names(self) -> set[str]:
        """Values that the document declares secret."""
        inputs = [field for remote in self.remotes for field in (*remote.headers, *_variables(remote.variables))]
        for package in self.packages:
            inputs += (*package.runtime_arguments, *package.package_arguments, *package.environment_variables)
        names: set[str] = set()
        while inputs:
            item = inputs.pop()
            inputs += _variables(item.variables)
            names |= {name for name in (item.name, item.value_hint) if item.is_secret and name}
        return names


class RegistryCommand(NamedTuple):
    """A package's command in parts, written as in `servers.yaml`."""

    kind: str
    program: str
    runtime: list[str]
    identifier: str
    arguments: list[str]
    env: dict[str, str]

    def entry(self) -> JsonObject:
        args = [*self.runtime, self.identifier, *self.arguments]
        return {"command": self.program, "args": args, **({"env": self.env} if self.env else {})}


def _variables(variables: Mapping[str, _Input]) -> list[_Input]:
    return [msgspec.structs.replace(item, name=name) for name, item in variables.items()]


def parse_server_json(content: bytes, source: str) -> ServerDetail:
    """The document, or one wrapped as `{"server": …}`. Raises `ConfigError`."""
    try:
        data = msgspec.json.decode(content)
        if isinstance(data, dict) and isinstance(data.get("server"), dict):
            data = data["server"]
        return msgspec.convert(data, ServerDetail)
    except (ValueError, RecursionError) as problem:
        if (line := line_of_half(content)) is not None:
            message = "holds half of a character (a lone surrogate). Correct the line."
            raise ConfigError(ConfigFinding("invalid_text", message, source, line)) from None
        reason = "the text is not UTF-8" if isinstance(problem, UnicodeDecodeError) else problem
        message = f"is not a server.json: {reason}. To add the MCP server at a URL: mcp-hub add NAME URL"
        raise ConfigError(ConfigFinding("invalid_server_json", message, source)) from None


def entry_of(detail: ServerDetail, values: Mapping[str, str], *, is_remote: bool = False) -> JsonObject:
    """The entry of the first supported package, else, or with `is_remote`, of the first remote. Raises `ConfigError`.

    `values`, by variable, header, flag or argument, may contain `${…}`. Missing required variables or headers become
    environment variables of their names.
    """
    command = command_of(detail, values, is_remote=is_remote)
    entry = _of_remote(detail, values) if command is None else command.entry()
    if max(map(len, (json.dumps(value) for value in entry.values()))) > _LONGEST:
        raise _invalid(f"has a command, a URL or headers of more than {_LONGEST} characters")
    return entry


def command_of(detail: ServerDetail, values: Mapping[str, str], *, is_remote: bool = False) -> RegistryCommand | None:
    """The command in `entry_of`; None for a remote. Raises `ConfigError`."""
    packages = [package for package in detail.packages if _is_supported(package)]
    if not packages or is_remote and detail.remotes:
        return None
    try:
        return _of_package(packages[0], values)
    except Unresolved as problem:
        raise ConfigError(ConfigFinding(problem.code, f"{problem}. Give the value with --set.")) from None


def inputs_of(detail: ServerDetail, values: Mapping[str, str], *, is_remote: bool = False) -> list[Input]:
    """The values that the server needs and that are neither in `values` nor in the document."""
    packages = [package for package in detail.packages if _is_supported(package)]
    if packages and not (is_remote and detail.remotes):
        package = packages[0]
        inputs = [*package.environment_variables, *package.runtime_arguments, *package.package_arguments]
    else:
        remote = _remote_of(detail)
        inputs = [] if remote is None else [*remote.headers, *_in_template(remote.url or "", remote.variables)]
    return [*{item.id: item for each in inputs for item in _open_inputs(each, values)}.values()]


def _open_inputs(item: _Input, values: Mapping[str, str]) -> Iterator[Input]:
    label = item.name or item.value_hint or "value"
    if item.value is not None:
        for variable in _in_template(item.value, item.variables):
            yield from _open_inputs(variable, values)
    elif label not in values and item.default is None and (item.is_required or item.is_secret):
        yield Input(label, item.description or "", password=item.is_secret)


def _in_template(template: str, variables: Mapping[str, _Input]) -> list[_Input]:
    names = dict.fromkeys(match[1] for match in _VARIABLE.finditer(template) if match[1] in variables)
    return [msgspec.structs.replace(variables[name], name=name, is_required=True) for name in names]


def variables_asked(entry: JsonObject, values: Mapping[str, str]) -> list[str]:
    """References that the document adds, not the person's values."""
    agreed = {reference for text in values.values() for reference in _references(text)}
    return list(dict.fromkeys(name for name in _references(entry) if name not in agreed))


def _references(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from (part.text for part in split_text(value) if isinstance(part, Reference))
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _references(inner)


def _is_supported(package: _Package) -> bool:
    return package.registry_type in _RUNTIMES and package.transport.type == "stdio"


def _of_package(package: _Package, values: Mapping[str, str]) -> RegistryCommand:
    kind = package.registry_type
    programs = _RUNTIMES[kind]
    program = package.runtime_hint or programs[0]
    if program not in programs:
        message = (
            f"runtimeHint {program!r} is not one of {', '.join(programs)}. Add the server with: mcp-hub add NAME -- …"
        )
        raise ConfigError(ConfigFinding("unsupported_package", message))
    if invalid := [
        item.name for item in package.environment_variables if item.name is not None and not is_variable_name(item.name)
    ]:
        raise _invalid(f"has {hide_head(invalid[0], 80)!r} as the name of an environment variable")
    env = dict(_named(package.environment_variables, values, str))
    runtime = _start(kind, _arguments(package.runtime_arguments, values), env)
    arguments = _arguments(package.package_arguments, values)
    return RegistryCommand(
        kind=kind,
        program=program,
        runtime=runtime,
        identifier=joined([_identifier(package)]),
        arguments=arguments,
        env=env,
    )


def _start(kind: str, runtime: list[str], env: Mapping[str, str]) -> list[str]:
    if kind == "npm":
        return runtime if {"-y", "--yes"} & {*runtime} else ["-y", *runtime]
    if kind == "pypi":
        return runtime
    passed = [word for name in env for word in ("-e", name)]
    return [*runtime, *passed] if runtime[:1] == ["run"] else ["run", "-i", "--rm", *runtime, *passed]


def _identifier(package: _Package) -> str:
    name, version = package.identifier, package.version
    if not _NAME.fullmatch(name) or version is not None and not _VERSION.fullmatch(version):
        raise _invalid(
            f"has {hide_head(name, 200)!r} {hide_head(version or '', 80)} as the name and the version of a package"
        )
    match package.registry_type:
        case _ if version is None or "://" in name:
            return name
        case "npm":
            return f"{name}@{version}"
        case "pypi":
            return f"{name}=={version}"
        case _:
            return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:{version}"


def _of_remote(detail: ServerDetail, values: Mapping[str, str]) -> JsonObject:
    remote = _remote_of(detail)
    if remote is None:
        kinds = ", ".join(sorted({package.registry_type for package in detail.packages})) or "none"
        message = (
            f"{detail.name} has no package that the hub can start (npm, pypi, oci over stdio) and no remote: {kinds}"
        )
        raise ConfigError(ConfigFinding("unsupported_package", message))
    if invalid := [item.name for item in remote.headers if item.name is not None and not _HEADER.fullmatch(item.name)]:
        raise _invalid(f"has {hide_head(invalid[0], 80)!r} as the name of a header")
    try:
        url = joined(_filled(remote.url or "", remote.variables, values))
        headers = dict(_named(remote.headers, values, variable_of))
    except Unresolved as problem:
        raise ConfigError(ConfigFinding(problem.code, f"{problem}. Give the value with --set.")) from None
    kind = {"type": "sse"} if remote.type == "sse" else {}
    return {"url": url, **kind, **({"headers": headers} if headers else {})}


def _remote_of(detail: ServerDetail) -> _Transport | None:
    return next((each for each in detail.remotes if each.url and each.type in ("streamable-http", "sse")), None)


def _named(
    inputs: Sequence[_Input], values: Mapping[str, str], variable: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """Leaves out optional ones without value."""
    for item in inputs:
        if item.name is None:
            continue
        value = _value(item, item.name, values)
        if value is None and (item.is_required or item.is_secret):
            value = [_reference(variable(item.name))]
        if value is not None:
            yield item.name, joined(value)


def _arguments(inputs: Sequence[_Input], values: Mapping[str, str]) -> list[str]:
    words: list[str] = []
    for item in inputs:
        label = item.name or item.value_hint or "value"
        parts = _value(item, label, values)
        value = None if parts is None else joined(parts)
        if item.type != "named":
            if value is None and item.is_required:
                raise _missing(label)
            words += [] if value is None else [value]
        elif item.format == "boolean":
            words += [joined([label])] if value == "true" else []
        elif value is not None:
            words += [joined([label]), value]
        elif item.is_required:
            raise _missing(label)
    return words


_Parts: TypeAlias = list[str | Reference]
"""A value before literals are escaped."""


def _value(item: _Input, label: str, values: Mapping[str, str]) -> _Parts | None:
    if item.value is not None:  # not for the person to choose
        return _filled(item.value, item.variables, values)
    if label in values:
        return split_text(values[label])
    return None if item.default is None else [item.default]


def _filled(template: str, variables: Mapping[str, _Input], values: Mapping[str, str]) -> _Parts:
    if (invalid := next((name for name in variables if not is_variable_name(name)), None)) is not None:
        raise _invalid(f"has {hide_head(invalid, 80)!r} as the name of a variable")
    parts: _Parts = []
    at = 0
    for match in _VARIABLE.finditer(template):
        if (variable := variables.get(match[1])) is None:
            continue
        value = _value(variable, match[1], values)
        parts.append(template[at : match.start()])
        parts += [_reference(variable_of(match[1]))] if value is None else value
        at = match.end()
    return [*parts, template[at:]]


def variable_of(name: str) -> str:
    """The environment variable that stands for a header or a variable of a template."""
    return re.sub(r"[^A-Za-z0-9]", "_", name).strip("_").upper()


def _reference(name: str) -> Reference:
    if not is_variable_name(name):
        raise _invalid(
            f"asks for a value for {hide_head(name, 80)!r}, which is not the name of an environment variable"
        )
    return Reference(name)


def _invalid(problem: str) -> ConfigError:
    return ConfigError(ConfigFinding("invalid_server_json", f"the server.json {problem}. Check where it comes from."))


def _missing(label: str) -> ConfigError:
    message = f"the server needs a value for {label}. Give it with: --set {label}=VALUE"
    return ConfigError(ConfigFinding("missing_parameter", message))
