"""Codes of servers; all codes, in groups and by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mcp_hub.codes.relayed import CALLS, CONFIGURATION, HTTP, OUTPUT, Advice, table

_TERMINAL: Final = (
    "Run the command in a terminal: its last lines say what is missing. A server gets PATH, HOME, and the settings of "
    "locale, proxies and package tools. Set other variables under its `env` in servers.yaml."
)

SERVERS: Final = table(
    ok=("The server is ready and clients get what it offers.", "Nothing to do."),
    disabled=("The server is disabled in the configuration.", "Set `enabled: true` to use it."),
    not_started=("The server starts when it is needed (`start: lazy`).", "Nothing to do."),
    idle=("The server was stopped while idle (`idle_stop`).", "Nothing to do: it starts when needed."),
    stopped=("The server was stopped on purpose.", "Restart it with `mcp-hub restart SERVER`."),
    restarted=("The server is restarted on request.", "Wait until it is ready."),
    command_not_found=("The program of `command` does not exist.", "Install it, or set `command` to its full path."),
    lookup_failed=(
        "The program of a `${cmd:…}` gave no value.",
        "Run it in a shell, and correct what it says. Then: `mcp-hub restart SERVER`.",
    ),
    not_executable=("`command` is a folder or a file that cannot be executed.", "Make it executable (chmod +x)."),
    interpreter_not_found=(
        "The first line (#!) of the script names an interpreter that does not exist.",
        "Install the interpreter, or correct the first line of the script.",
    ),
    cwd_not_found=("The working directory does not exist.", "Create it, or correct `cwd`."),
    cwd_not_accessible=("The hub's user may not enter the working directory.", "Change its permissions or `cwd`."),
    no_local_servers=(
        "The hub runs on Windows itself, where it starts no servers that are programs.",
        "Run the hub in WSL: `wsl --install -d Ubuntu`, then `mcp-hub install --all --import` in Ubuntu.",
    ),
    cannot_start=(
        "The system refused to start the program.",
        "Check `command`, `args` and `env`, and the system's limits.",
    ),
    too_many_files=(
        "The hub may not open the files that another process or connection needs.",
        "Raise the limit of open files: `ulimit -n`, `LimitNOFILE=` of systemd, `--ulimit nofile=` of Docker.",
    ),
    sandbox_refused=(
        "The sandbox of the server refused a file, a host or a socket that it needs.",
        "Add the path or host that the message names to `sandbox` of the server, if the server may have it.",
    ),
    sandbox_rule=(
        "The rule of the sandbox would open too much, or hides the program of the server.",
        "Name the folders that the server needs under `read` and `write` of `sandbox`.",
    ),
    sandbox_unsupported=(
        "This system has no sandbox, or not the part that the rule needs.",
        "Use a newer kernel, loosen the rule, or set `sandbox` to `prefer` to start the server without one.",
    ),
    module_not_found=(
        "The module of `local`, or a module that it needs, is not installed.",
        "Put the module next to the configuration, or install it where the hub is installed.",
    ),
    module_untrusted=(
        "Another user can write the module of `local`.",
        "Make the file yours, and take away others' right to write.",
    ),
    registry_not_found=(
        "`local` does not name a Registry.",
        "Name it as module:attribute, for example my_tools:registry.",
    ),
    skills_not_found=(
        "The folder of `skills` does not exist, cannot be read, or has too many files.",
        "Create it, or correct `skills`.",
    ),
    scripts_not_found=(
        "The folder of `scripts` does not exist, cannot be read, has too many files, or others may write it.",
        "Create it, correct `scripts`, or take away others' right to write.",
    ),
    import_failed=("Importing the module of `local` raised an error.", "Fix the module."),
    start_crashed=("The process ended with an error before it was ready.", _TERMINAL),
    start_timeout=(
        "The server was not ready in time.",
        "Raise `start_timeout` if it downloads or is slow, or find out what it waits for.",
    ),
    start_failed=("The server did not start.", "Run the command in a terminal and read its output."),
    not_mcp=(
        "The program does not speak MCP.",
        "Check that the command is an MCP server over stdio: it may need a subcommand or flag (`mcp`, `--stdio`), "
        "its logs belong on stderr, and each message on one line.",
    ),
    handshake_failed=("The server refused to begin a session.", "Read its message, and try a newer version of it."),
    era_mismatch=(
        "The hub and the server have no protocol version in common.",
        "Set `era: follow`, or use a version of the server with a protocol that the hub speaks.",
    ),
    list_failed=("The server started but cannot list its tools.", "Read its message, and report it to its authors."),
    no_tools=("The server offers nothing.", "Check its arguments, which may switch features on, and its credentials."),
    all_filtered=(
        "Filters hide everything that the server offers.",
        "Loosen `tools`, `resources` and `prompts` of the server.",
    ),
    definitions_quarantined=(
        "Definitions that clients would refuse are left out.",
        "Report them to the authors of the server.",
    ),
    lists_unsteady=(
        "A list of the server is another one each time it is read, so the hub takes it over once an hour.",
        "Report it to the authors of the server.",
    ),
    crashed=("The process of the server ended with an error.", _TERMINAL),
    ended=("The process of the server ended without an error.", "Look at its last lines and its own log."),
    closed_output=("The server closed its output.", "Look at its last lines and its own log."),
    closed_input=("The server closed its input.", "Look at its last lines and its own log."),
    not_reading=("The server did not read its input for too long.", "Report it to its authors."),
    hung=(
        "After a call timed out, the server did not answer a ping either.",
        "Look for what it waits for; raise `request_timeout` if it is only slow.",
    ),
    closed=("The hub closed the connection.", "Nothing to do."),
    connection_lost=("The connection to the server was lost.", "Check the network and the server."),
    session_lost=("The server has lost the session.", "Nothing to do: the hub connects again."),
    era_changed=("The server now speaks another version.", "Nothing to do: the hub connects again."),
    connection_refused=("Nothing listens at the host and port of `url`.", "Check `url`, and that the server runs."),
    host_not_found=("The host of `url` has no address.", "Check `url` and the name service."),
    connect_timeout=(
        "The host of `url` did not answer in time.",
        "Check `url`, firewalls, and the proxies of the environment.",
    ),
    tls_failed=("The TLS handshake failed.", "Check that `url` and its port are those of an HTTPS server."),
    tls_unknown_issuer=(
        "The certificate of the server is signed by an authority that is not trusted here.",
        "Name the certificate of that authority: `tls: {ca: FILE}` of the server, or SSL_CERT_FILE or "
        "NODE_EXTRA_CA_CERTS in the hub's environment.",
    ),
    tls_wrong_host=(
        "The certificate of the server is for another host.",
        "Use a host in `url` that the certificate names.",
    ),
    tls_expired=(
        "The certificate of the server has expired or is not valid yet.",
        "Renew it, or correct the clock of this machine.",
    ),
    ca_unreadable=("The file of `tls: {ca: FILE}` cannot be used.", "Name a file of certificates in PEM form."),
    proxy_failed=("The proxy refused the connection.", "Check the proxies of the environment."),
    invalid_proxy=(
        "A proxy of the environment cannot be used.",
        "Correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY; a SOCKS proxy needs the extra `socks`.",
    ),
    unreachable=(
        "No connection to `url` could be made.",
        "Check `url`, that the server runs, and the proxies of the environment.",
    ),
    no_endpoint=("`url` is not an MCP endpoint.", "Check its path: often it is /mcp or /sse."),
    endpoint_elsewhere=(
        "The server wants messages sent to another host.",
        "Use a `url` whose server stays on its own host.",
    ),
    server_error=("The server at `url` answered with an error of its own.", "Read its log, and try again later."),
    rate_limited=("The server at `url` refuses more requests for now.", "Wait, or ask for a higher limit."),
    request_refused=("The server at `url` refused the request.", "Read its message and its log."),
    login_needed=("The server requires a login.", "Log in with `mcp-hub login SERVER`, or set `bearer` or `headers`."),
    login_failed=("The login failed.", "Check `oauth` of the server, and that its authorization server runs."),
    rights_missing=(
        "The login does not have the rights that the server wants.",
        "Log in again with `mcp-hub login SERVER`, with an account that has them; for a machine set `scopes`.",
    ),
    not_admitted=("The server does not accept the credentials.", "Set valid credentials in `bearer` or `headers`."),
    internal_error=("The hub made a mistake.", "Report it with the hub's log."),
    unreadable_answer=("The server sent an answer that is not MCP.", "Report it to its authors."),
)
"""Why a server is not ready: `code` in `/v1/servers`, `mcp-hub list`, metrics, and `data.upstream.code` of errors."""


COMMANDS: Final = table(
    usage=("Options or arguments do not fit together.", "See `--help` of the command."),
    unknown_server=("No server has this name.", "Use a configured name: `mcp-hub list`."),
    unknown_tool=("No tool has this name.", "Use a listed name: `mcp-hub tools`."),
    invalid_call=("The file of `policy test` does not describe a call.", "Correct what the message names."),
    unknown_profile=("No profile has this name, or you may not use it.", "Correct the name."),
    unknown_client=("No client has this name.", "Use a known one, or add it to `hub.clients`."),
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
    hub_outdated=(
        "The running hub goes by an earlier version of its file: the present one has a mistake, or was not read.",
        "Correct what `mcp-hub check` shows, then run `mcp-hub reload`.",
    ),
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
    invalid_server_json=(
        "The document is not a server.json, a server card, an AI catalog, or the answer of an MCP registry.",
        "Check its URL or its file.",
    ),
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
    no_registry=(
        "A name or a search was given, and no registry is configured.",
        "Set `hub.registry`, or name a file, a URL or a domain.",
    ),
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
    no_audit_file=("The configuration has no audit in a file.", "Name the file, or set `path` under `hub.audit`."),
    audit_not_found=(
        "The audit file does not exist.",
        "Name the file that is to be verified. A hub makes it when it starts.",
    ),
    audit_unreadable=("A file of the audit cannot be read.", "Run the command as the user of the hub, or as root."),
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
