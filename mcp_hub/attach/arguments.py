"""The arguments of `mcp-hub serve`; the whole command reads unusual forms."""

import os

from mcp_hub.attach.system import user_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MODES = ("auto", "always", "never")
USERS_FILE = "@user"
VARIABLE = "MCP_HUB_ATTACH"
"""The variable that overrides `hub.attach`; an option overrides both."""
NAMES = ("servers.yaml", "servers.yml", "servers.json")
_OPTIONS = {"--config": "config", "-c": "config", "--profile": "profile", "--client": "client", "--attach": "attach"}


class HubWanted:
    """A client's request for a hub. `config` is an absolute path."""

    __slots__ = ("arguments", "attach", "client", "config", "profile")

    def __init__(
        self, arguments: "Sequence[str]", config: str, profile: str | None, client: str | None, attach: str | None
    ) -> None:
        self.arguments = arguments
        self.config = config
        self.profile = profile
        self.client = client
        self.attach = attach


def wanted(arguments: "Sequence[str]", env: "Mapping[str, str]") -> HubWanted | None:
    """The hub that the arguments ask for; None if the whole command must look."""
    options = _options(arguments[1:]) if arguments[:1] in (["serve"], ("serve",)) else None
    if options is None:
        return None
    config = find_config(options.get("config"), os.getcwd(), env)
    attach = options.get("attach", env.get(VARIABLE) or None)
    if config is None or attach not in (None, *MODES):
        return None
    is_named = options.get("config", USERS_FILE) != USERS_FILE or env.get("MCP_HUB_CONFIG")
    if not is_named and os.path.dirname(config) == os.getcwd():
        return None  # nobody has named it: the whole command looks at what it wants
    return HubWanted(
        arguments=arguments, config=config, profile=options.get("profile"), client=options.get("client"), attach=attach
    )


def _options(arguments: "Sequence[str]") -> dict[str, str] | None:
    """None for an unknown or empty option."""
    options: dict[str, str] = {}
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        if name not in _OPTIONS or (equals and name == "-c"):
            return None
        text = value if equals else next(remaining, None)
        if text is None or text.startswith("-"):
            return None
        options[_OPTIONS[name]] = text
    return options


def find_config(explicit: str | None, cwd: str, env: "Mapping[str, str]") -> str | None:
    """The configuration's absolute path: as named, in `cwd`, or the user's."""
    named = (None if explicit == USERS_FILE else explicit) or env.get("MCP_HUB_CONFIG")
    if named:
        home = env.get("HOME")
        if named == "~" or named.startswith("~/"):
            if not home:
                return None
            named = home + named[1:]
        places = [os.path.join(cwd, named)]
    else:
        places = [os.path.join(cwd, name) for name in NAMES if explicit != USERS_FILE]
        places.append(os.path.join(user_folder("config", env), NAMES[0]))
    return next((os.path.abspath(path) for path in places if os.path.isfile(path)), None)


def state_folder(env: "Mapping[str, str]") -> str:
    return os.path.abspath(env.get("MCP_HUB_STATE_DIR") or user_folder("state", env))
