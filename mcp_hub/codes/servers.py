"""Codes of servers."""

from typing import Final

from mcp_hub.codes.advice import table

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
    no_endpoint=("There is no MCP endpoint at `url`.", "Check its path: often it is /mcp or /sse."),
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
