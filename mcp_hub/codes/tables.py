"""All codes, in groups and by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mcp_hub.codes.advice import Advice, table
from mcp_hub.codes.relayed import CALLS, CONFIGURATION, HTTP, OUTPUT
from mcp_hub.codes.servers import SERVERS

COMMANDS: Final = table(
    usage=("Options or arguments do not fit together.", "See `--help` of the command."),
    unknown_server=("There is no server of this name.", "Use a configured name: `mcp-hub list`."),
    unknown_tool=("There is no tool of this name.", "Use a listed name: `mcp-hub tools`."),
    unknown_profile=("There is no profile of this name, or you may not use it.", "Correct the name."),
    unknown_client=("There is no client of this name.", "Use a known one, or add it to `hub.clients`."),
    invalid_hub_url=("The value is not the URL of a hub.", "Write it as http://127.0.0.1:8765."),
    not_a_hub=("The server at the URL is not a hub.", "Check --url."),
    no_running_hub=(
        "No hub serves the configuration over HTTP or in the background.",
        "Start one with `mcp-hub serve --http`, or name one with --url.",
    ),
    hub_not_answering=(
        "The background hub of the configuration does not answer, or does not end.",
        "Wait a moment; if it stays like that, end its process: `mcp-hub status` has its number.",
    ),
    not_attached=(
        "With `hub.attach: always` a client must join a background hub, and cannot.",
        "Remove the cause that the message names, or set `hub.attach: auto`.",
    ),
    hub_outdated=("The running hub has not read this version of the file.", "Run `mcp-hub reload`, or add --local."),
    refused_by_hub=("The hub refused the request.", "Read its message."),
    cannot_listen=("The address cannot be listened on.", "Choose another one with --host and --port."),
    store_in_memory=(
        "Streams are kept in the memory of the running hub.",
        "Start `mcp-hub serve --http`, or ask a hub with --url.",
    ),
    unknown_parameter=("The tool or prompt does not have this parameter.", "Correct its name; see `mcp-hub tools`."),
    missing_parameter=("The tool or prompt needs an argument that is missing.", "Add it as KEY=VALUE."),
    output_exists=("The file to write exists already.", "Change it with `mcp-hub add`, `import` or `edit`."),
    output_unwritable=(
        "The file or folder cannot be written.",
        "Check its folder and its permissions, or choose another one.",
    ),
    server_exists=("There is a server of this name already.", "Choose another name, or add --replace."),
    foreign_file=("The file is one of another client.", "Import its servers: `mcp-hub import FILE`."),
    not_editable=(
        "An edit of the file could change more than this entry.",
        "Make the change by hand: `mcp-hub edit`.",
    ),
    invalid_server_json=("The document is not a server.json of the MCP registry.", "Check its URL or its file."),
    any_command=(
        "The command of a server.json can run more than a package of a registry.",
        "Read what the command prints; if you trust it, add --allow-any-command.",
    ),
    variable_not_agreed=(
        "A server.json, or a file that is not your own, asks for the value of a variable that is set here.",
        "Add what the message shows to give it, or leave out --yes to be asked. "
        "An imported server is disabled until then.",
    ),
    unsupported_package=(
        "The server.json has nothing that the hub can start or reach.",
        "Add the server by its command: `mcp-hub add NAME -- COMMAND…`.",
    ),
    no_registry=("A name was given, and no registry is configured.", "Set `hub.registry`, or name a file or a URL."),
    fetch_failed=("The document cannot be fetched.", "Check the URL, the name, and the network."),
    editor_failed=("The editor cannot be started, or ended with an error.", "Set VISUAL or EDITOR."),
    file_busy=("Another program changes the file at the same time.", "Try again."),
    state_unreadable=("A file of approvals cannot be read.", "Remove it with `mcp-hub approve --forget`."),
    state_unwritable=("A file of approvals cannot be written.", "Check its permissions and the disk."),
    no_terminal=("The command cannot ask: stdin is not a terminal.", "Add --yes."),
    hidden_command=(
        "Applications that start from the desktop do not find the program of a server.",
        "Run `mcp-hub doctor --fix`, or set `command` to its full path.",
    ),
    start_folder=(
        "A server works on the folder that it starts in, and starts in an empty one.",
        "Run `mcp-hub doctor --fix`, or set `cwd`.",
    ),
    sandbox_off=(
        "Servers that were added or imported have no sandbox, and the configuration does not say so.",
        "Run `mcp-hub sandbox SERVER on`, or `off` to leave it so.",
    ),
    path_missing=(
        "The configuration names a file or folder that is not on this machine.",
        "Create or copy it, or correct the path with `mcp-hub edit`.",
    ),
    login_missing=(
        "The configuration has a login for a server, and nobody has logged in on this machine.",
        "Run `mcp-hub login` with the name of the server.",
    ),
    stale_record=("A hub was killed and has left its record.", "Run `mcp-hub doctor --fix`, or ignore it."),
    client_entry_lost=(
        "A client does not have the hub in its file any more.",
        "Run `mcp-hub doctor --fix`, or `mcp-hub install` with the name of the client.",
    ),
    no_service=(
        "The system does not have services that the hub knows.",
        "Start `mcp-hub serve --http` in another way.",
    ),
    not_ours=("The file was not written by the hub, which leaves it alone.", "Rename the file."),
    service_failed=("The system could not start or stop the service.", "Read the message of its command."),
    client_import_only=("The hub is not installed into this client.", "Put the printed entry into its file."),
    no_client=("No client was found on this machine.", "Name one: `mcp-hub install CLIENT`."),
    client_file_unclear=(
        "The file of a client cannot be edited safely.",
        "Correct the file, or put the printed entry into it yourself.",
    ),
    client_entry_differs=(
        "The hub's entry of a client has options that a new entry would not keep.",
        "Change the entry yourself; or take it out with `mcp-hub uninstall` and install again.",
    ),
    client_file_changed=("Another program changes the file of a client.", "Quit that program, and try again."),
    client_file_unreadable=("The file of a client cannot be read.", "Check what it is, and its permissions."),
    client_file_unwritable=("The file of a client, or its folder, cannot be written.", "Check their permissions."),
    client_running=("The client runs and would write its old file back.", "Quit it, or add --wait."),
    client_cli_failed=("The client's own command did not do what it reported.", "Try again, or update the client."),
    client_without_http=("The client cannot reach the hub by its URL.", "Install it without --http."),
    wsl_unplain=(
        "A name or path is one that Windows may read in another way, so no client on Windows gets it.",
        "Rename it, or move the hub or its configuration to another folder.",
    ),
    no_windows=(
        "Clients on Windows are not reached: this is not the Linux of WSL, or its Windows is not found.",
        "Run the command in WSL, or set USERPROFILE as the message says.",
    ),
    client_command_lost=(
        "The hub runs from a folder that will be removed.",
        "Install the hub, or put uvx on the PATH.",
    ),
    dangling_link=("The file of a client is a link to nothing.", "Remove the link, or create the file."),
    nothing_to_undo=("No install, uninstall, leave, import or export is recorded.", "Nothing to do."),
    undo_drift=(
        "A file was changed after the hub changed it, and something in it cannot be turned back.",
        "Correct the line, and undo again; or take it from the saved copy.",
    ),
    no_dashboard=("The running hub does not have a dashboard.", "Set `hub.http.dashboard`."),
    no_display=("`mcp-hub top` needs a terminal.", "Use `mcp-hub list --json` or `mcp-hub streams --json`."),
    no_textual=("`mcp-hub top` needs Textual.", "Install the extra `top`, as the message says."),
    no_login=("The server does not take a login.", "See the message."),
    logout_failed=("The login could not be removed.", "Check the file's permissions."),
)
"""Failures of commands, in brackets behind the message; names that do not exist also in the configuration and REST."""


GROUPS: Final[Mapping[str, Mapping[str, Advice]]] = MappingProxyType(
    {
        **{"Servers": SERVERS, "Configuration": CONFIGURATION, "Calls": CALLS, "HTTP": HTTP},
        **{"Model output": OUTPUT, "Commands": COMMANDS},
    }
)

CODES: Final[Mapping[str, Advice]] = MappingProxyType(
    {code: advice for group in GROUPS.values() for code, advice in group.items()}
)
"""All of them."""
