"""The stable code of every failure that a user can meet: what it means and how to fix it.

Programs test for codes; `mcp-hub doctor` looks its advice up here, and `docs/errors.md` is made from this table. The
sentence beside a code is for people and may change; a code does not. `tests/unit/test_codes.py` holds the table equal
to the codes that the package uses.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Advice(NamedTuple):
    """The meaning of a code and the advice for it."""

    meaning: str
    fix: str


def _table(**rows: tuple[str, str]) -> Mapping[str, Advice]:
    return MappingProxyType({code: Advice(*row) for code, row in rows.items()})


_TERMINAL: Final = (
    "Run the command in a terminal: its last lines say what is missing. A server gets PATH, HOME, and the settings of "
    "locale, proxies and package tools. Set other variables under its `env` in servers.yaml."
)

SERVERS: Final = _table(
    ok=("The server is ready and clients get what it offers.", "Nothing to do."),
    disabled=("The server is disabled in the configuration.", "Set `enabled: true` to use it."),
    not_started=("The server starts when it is needed (`start: lazy`).", "Nothing to do."),
    idle=("The server was stopped while idle (`idle_stop`).", "Nothing to do: it starts when needed."),
    stopped=("The server was stopped on purpose.", "Restart it with `mcp-hub restart`."),
    restarted=("The server is restarted on request.", "Wait until it is ready."),
    command_not_found=("The program of `command` does not exist.", "Install it, or set `command` to its full path."),
    not_executable=("`command` is a folder or a file that cannot be executed.", "Make it executable (chmod +x)."),
    interpreter_not_found=(
        "The first line (#!) of the script names an interpreter that does not exist.",
        "Install the interpreter, or correct the first line of the script.",
    ),
    cwd_not_found=("The working directory does not exist.", "Create it, or correct `cwd`."),
    cwd_not_accessible=("The hub's user may not enter the working directory.", "Change its permissions or `cwd`."),
    cannot_start=(
        "The system refused to start the program.",
        "Check `command`, `args` and `env`, and the system's limits.",
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
    import_failed=("Importing the module of `local` raised an error.", "Fix the module."),
    start_crashed=("The process ended with an error before it was ready.", _TERMINAL),
    start_timeout=(
        "The server was not ready in time.",
        "Raise `start_timeout` if it downloads or is slow, else look for what it waits for.",
    ),
    start_failed=("The server did not start.", "Run the command in a terminal and read its output."),
    not_mcp=(
        "The program does not speak MCP.",
        "Check that the command is an MCP server over stdio: it may need a subcommand or flag (`mcp`, `--stdio`), "
        "and its logs belong on stderr.",
    ),
    handshake_failed=("The server refused to begin a session.", "Read its message, and try a newer version of it."),
    era_mismatch=(
        "The hub and the server have no protocol version in common.",
        "Set `era: auto`, or use a version of the server with a protocol that the hub speaks.",
    ),
    list_failed=("The server started but cannot list its tools.", "Read its message, and report it to its authors."),
    no_tools=("The server offers nothing.", "Its arguments may switch features on, or it may need credentials."),
    all_filtered=(
        "Filters hide everything that the server offers.",
        "Loosen `tools`, `resources` and `prompts` of the server.",
    ),
    definitions_quarantined=(
        "Definitions that clients would refuse are left out.",
        "Report them to the authors of the server.",
    ),
    crashed=("The process of the server ended with an error.", _TERMINAL),
    ended=("The process of the server ended by itself.", "Look at its last lines and its own log."),
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
    tls_failed=("The TLS handshake failed.", "Check the certificate; SSL_CERT_FILE may name another authority."),
    proxy_failed=("The proxy refused the connection.", "Check the proxies of the environment."),
    invalid_proxy=("A proxy of the environment cannot be used.", "Correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY."),
    unreachable=(
        "No connection to `url` could be made.",
        "Check `url`, that the server runs, and the proxies of the environment.",
    ),
    no_endpoint=("There is not an MCP endpoint at `url`.", "Check its path: often it is /mcp or /sse."),
    endpoint_elsewhere=(
        "The server wants messages sent to another host.",
        "Use a `url` whose server keeps to its own host.",
    ),
    server_error=("The server at `url` answered with an error of its own.", "Read its log, and try again later."),
    rate_limited=("The server at `url` refuses more requests for now.", "Wait, or ask for a higher limit."),
    request_refused=("The server at `url` refused the request.", "Read its message and its log."),
    login_needed=("The server wants a login.", "Log in with `mcp-hub login`, or set `bearer` or `headers`."),
    login_failed=("The login failed.", "Check `oauth` of the server, and that its authorization server runs."),
    rights_missing=(
        "The login does not have the rights that the server wants.",
        "Log in again with `mcp-hub login`, with an account that has them; for a machine set `scopes`.",
    ),
    not_admitted=("The server does not accept the credentials.", "Set valid credentials in `bearer` or `headers`."),
    internal_error=("The hub made a mistake.", "Report it with the hub's log."),
    unreadable_answer=("The server sent an answer that is not MCP.", "Report it to its authors."),
)
"""Why a server is not ready: `code` in `/v1/servers`, `mcp-hub list`, metrics, and `data.upstream.code` of errors."""

CONFIGURATION: Final = _table(
    config_not_found=("The configuration file does not exist.", "Create it, or name it with --config."),
    config_unreadable=("The file cannot be read.", "Check its permissions."),
    config_untrusted=(
        "Another user can write the file, and so run commands as you.",
        "Make the file yours and take away others' right to write; MCP_HUB_TRUST_CONFIG=1 switches the check off.",
    ),
    state_untrusted=(
        "Another user can write a folder of the hub: streams, logins, approvals.",
        "Run `mcp-hub doctor --fix`; MCP_HUB_TRUST_CONFIG=1 switches the check off.",
    ),
    config_too_large=("The file is too large for a configuration.", "Check which file it is."),
    config_empty=("The file is empty.", "Add servers."),
    invalid_yaml=("The file is not valid YAML, or uses YAML that is not data.", "Correct the line."),
    invalid_json=("The text is not valid JSON.", "Correct it."),
    invalid_text=("A text is not valid Unicode.", "Save the file as UTF-8; remove lone surrogates."),
    too_deep=("The file is nested too deep, or aliases make it too large.", "Make it flatter."),
    invalid_toml=("The file is not valid TOML.", "Correct the line."),
    unknown_key=("There is not a key of this name.", "Correct or remove the key."),
    not_foreign=("The file is not one of another client.", "Use it with --config as it is."),
    ignored_key=("A key of another client was ignored.", "Remove it, or use the hub's own key."),
    duplicate_key=("A key occurs twice.", "Remove one of them."),
    missing_key=("A key is missing that is needed, also by another key.", "Add the key."),
    misplaced_key=("A key does not apply here.", "Remove the key, or move it."),
    conflicting_keys=("Two keys say the same or contradict each other.", "Keep one of them."),
    wrong_type=("The value has the wrong type.", "Write a value of the expected type."),
    out_of_range=("The value is too small, too large, too short or too long.", "Keep to the bounds."),
    invalid_value=("The value cannot be used.", "Write what the message expects."),
    invalid_url=("The value is not a URL that can be used.", "Write http:// or https:// with a host."),
    cleartext_url=("Others on the network can read http://.", "Use https://."),
    invalid_placeholder=("A `${…}` cannot be understood.", "Write ${VAR}, ${VAR:-default} or ${file:path}."),
    variable_not_set=("An environment variable is not set.", "Set it, or give a default: ${VAR:-default}."),
    file_unreadable=("The file of a `${file:…}` cannot be read.", "Check its path and permissions."),
    file_untrusted=("Another user can write the file.", "Take away others' right to write."),
    secret_readable=("Other users can read the file of a secret.", "Take away their right: chmod go-rwx."),
    secret_in_arguments=("Arguments of processes show up in `ps`.", "Give secrets by `env`."),
    guessable_token=("A token is so short that it can be guessed.", "Use 16 characters or more."),
    keyring_unavailable=(
        "The keyring cannot be used or lacks the entry.",
        "Install mcp-hub[keyring], or store the entry.",
    ),
    not_installed=("An optional package is not installed.", "Install the extra that the message names."),
    duplicate_name=("Two things have the same name.", "Rename one of them."),
    duplicate_token=("Two tokens are the same.", "Generate another one."),
    name_taken=("The name is taken.", "Choose another name, or restart the hub."),
    name_too_long=("A tool's name is longer than `hub.max_name_length`.", "Shorten it, or raise the limit."),
    budget_too_small=("The hub's own tools need more than `budget`.", "Raise it, or set `expose: search`."),
    no_servers=("The configuration has no servers.", "Add one."),
    public_without_tokens=(
        "Everybody who reaches the address could run your tools.",
        "Set `hub.tokens` or `hub.http.oauth`, or `hub.http.allow_public` if something else guards it.",
    ),
    unmatched_pattern=("A pattern matches nothing that the servers list.", "Correct or remove it."),
    server_not_ready=("A server is not ready, so nothing was compared with it.", "See `mcp-hub doctor`."),
    tool_not_approved=("A tool is new or has changed.", "Look at it, and approve it: `mcp-hub approve`."),
    suspicious_tool=("A tool's description looks like an attack.", "Look at it before you use it."),
)
"""Findings about a configuration: `mcp-hub check`, start and reload."""

CALLS: Final = _table(
    parse_error=("The message is not JSON, or too large or too deep.", "Correct the client."),
    invalid_request=("The message is not a valid JSON-RPC request.", "Correct the client."),
    method_not_found=("The hub or the server does not have the method.", "Do not call it."),
    invalid_params=("The parameters do not fit.", "Correct them as the message says."),
    invalid_arguments=("A model's arguments are not a JSON object.", "Call again with one."),
    arguments_too_large=("A model's arguments have more than 1 MiB.", "Send less."),
    arguments_too_deep=("A model's arguments have more than 50 levels.", "Send flatter ones."),
    output_failed=("The provider reported an error in a model's output.", "See its message."),
    header_mismatch=("HTTP headers and the body do not agree.", "Correct the client."),
    missing_capability=("The client did not declare a capability.", "Declare what `data` names."),
    unsupported_version=("The protocol version is not supported.", "Use one that `data.supported` names."),
    unknown_entry=("No tool, resource or prompt has this name.", "List again; `data.nearest` names similar ones."),
    tool_removed=("The tool was listed and no longer is.", "List again; `data.nearest` names similar ones."),
    not_approved=("The tool is held back until a person approves it.", "Approve it: `mcp-hub approve`."),
    unknown_stream=("The stream expired, belongs to somebody else or never existed.", "Call again."),
    events_gone=("Events behind the cursor are no longer kept.", "Read from `earliest` on."),
    upstream_unavailable=("The server is not ready; nothing was sent.", "Retry later; `data.upstream.code` says why."),
    upstream_crashed=(
        "The connection to the server was lost during the call.",
        "Check whether the call took effect, then retry.",
    ),
    upstream_refused=(
        "The server answered with an HTTP status.",
        "Wait `retryAfter` s if it has them, else see `data.upstream.code`.",
    ),
    upstream_error=("The server broke the protocol.", "Report it to the authors of the server."),
    client_error=("The client sent an invalid answer to a question.", "Correct the client."),
    tool_error=("The server answered with an error, which is relayed.", "See `jsonrpc`."),
    deadline_exceeded=("The call took too long.", "Raise the limit that `data.limit` names."),
    busy=("A limit of the hub is reached; nothing was done.", "Wait `retryAfter` s, or raise `setting`."),
    cancelled=("Somebody else cancelled the call.", "Call again if it is still needed."),
    hub_stopped=("The hub stopped during the call.", "Check whether the call took effect, then retry."),
    hub_restarted=("The hub that ran the call is gone.", "Check whether it took effect, then retry."),
    executor_lost=("The client that executes the tool is gone.", "Check whether the call took effect."),
)
"""Errors of calls: `data.code` of the hub's own JSON-RPC errors, and `code` of `error` events and REST problems."""

HTTP: Final = _table(
    unauthorized=("A valid bearer token is required.", "Send `Authorization: Bearer` with a token."),
    invalid_token=("The access token is not valid for this hub.", "Get a new one; check issuer and audience."),
    insufficient_scope=("The access token lacks a scope or a profile.", "Ask for the scopes in the challenge."),
    keys_unavailable=("The keys of the token's issuer cannot be fetched.", "Try again later."),
    token_in_query=("A token in a URL would be logged.", "Send it as a header."),
    token_required=("The request needs a token of `hub.tokens`.", "Configure and send one."),
    profile_bound=("The token belongs to one profile.", "Use a token without a profile."),
    origin_not_allowed=("The Origin is not allowed.", "Add it to `hub.http.cors` or `hub.http.allowed_origins`."),
    host_not_served=("The Host is not served here.", "Add it to `hub.http.allowed_hosts`."),
    misdirected=("Request target and Host header name different hosts.", "Correct the client."),
    repeated_header=("A header occurs more than once.", "Send it once."),
    missing_header=("A header is missing.", "Send it."),
    invalid_header=("A header has a value that cannot be used.", "Correct it."),
    head_too_large=("Request line and headers are too large.", "Send less, or raise `hub.http.max_headers`."),
    body_too_large=("The body is over the limit.", "Send less, or raise `hub.http.max_body`."),
    too_large=("A post of an executor is over the limit.", "Send less, or raise `hub.limits.event`."),
    malformed_request=("The request is not HTTP/1.1.", "Correct the client."),
    request_timeout=("The request did not arrive in time.", "Send it faster, or raise the limit."),
    unsupported_media_type=("The Content-Type is not supported.", "Send `Content-Type: application/json`."),
    not_acceptable=("Accept names nothing that can be sent.", "Name the media type of the message."),
    method_not_allowed=("The path does not take this method.", "Use one that `Allow` names."),
    not_found=("There is nothing at this path.", "See /v1/openapi.json; the MCP endpoint is /mcp."),
    session_required=("The request needs a session.", "Send `initialize` first."),
    unknown_session=("The session no longer exists.", "Send `initialize` again."),
    unknown_event=("The hub does not know the event id.", "Call again."),
    malformed=("A post of an executor cannot be understood.", "Correct the executor."),
    invalid_body=("The body does not fit the schema.", "See /v1/openapi.json."),
    invalid_parameter=("A query parameter has a value that cannot be used.", "Correct it."),
    invalid_cursor=("The cursor is not the number of an event.", "Use one that the hub gave."),
    invalid_idempotency_key=("The Idempotency-Key cannot be used.", "Use 1 to 255 ASCII characters."),
    idempotency_key_reused=("The Idempotency-Key belongs to another request.", "Use a new key."),
    unknown_format=("The format is not known.", "Use one that the message names."),
    unsupported_tool=("The format cannot carry a tool.", "Rename it, or select others."),
    too_many_tools=("The provider does not take so many tools.", "Select some: `tools=`, `profile=`, `expose=search`."),
    deferral_unsupported=("The format cannot defer tools.", "Use `expose=search`, or another format."),
    public_url_required=(
        "A provider can only connect to a hub with a public https address.",
        "Set `hub.http.public_url`, or give `url=`.",
    ),
    too_many_calls=("The request has more than 64 calls.", "Split it."),
    invalid_calls=("The body does not hold calls of the format.", "Send what the model answered, in its format."),
    invalid_results=("The body does not hold results of the format.", "Correct it."),
    duplicate_call_id=("Two calls have the same id.", "Give each call an id of its own."),
    unknown_call=("A result belongs to no call of the request.", "Use the id of a call."),
    missing_result=("A call has no result.", "Give each call a result; an error is one."),
    unknown_expose=("The value of `expose` is not known.", "Use one that the message names."),
    unknown_question=("The question is not open.", "Read the stream's open questions."),
    unknown_executor_or_call=("The executor or the call is not known.", "Register again."),
    no_executors=("The hub takes no executors.", "Configure tools that clients execute."),
    server_disabled=("The server is disabled in the configuration.", "Set `enabled: true`."),
    invalid_configuration=("The file cannot be used; the hub keeps its settings.", "See `findings`."),
    stream_ended=("The call has ended.", "Read its result."),
    call_ended=("The call has ended.", "Drop the post."),
    replaced=("Another connection fetches the calls of this executor.", "Keep one connection."),
    gap=("A post of an executor is missing.", "Post the missing one first."),
    stale_epoch=("Another registration replaced this executor.", "Register again."),
    no_credit=("The executor posts faster than the hub can take it.", "Wait, and post again."),
    starting=("Servers start that have never been listed.", "Wait up to `hub.first_list_wait`."),
    stopping=("The hub is stopping.", "Use another hub, or wait until it is back."),
    store_out_of_use=("The file of streams cannot be used: they are in memory.", "Check the disk."),
    no_server=("All enabled servers have failed.", "See `mcp-hub doctor`."),
    watchdog_gave_up=(
        "The watchdog process keeps ending, so servers may outlive a hub that is killed.",
        "See why in the log, and end whatever kills it; the hub tries again each minute.",
    ),
    not_kept=("The post was not stored in time.", "Post again under the same number."),
    read_only=("The dashboard only shows.", "Set `hub.http.dashboard: full`."),
    changed_meanwhile=("The tool is not waiting with the definition that was approved.", "Review it again."),
    overrides_unwritable=("The file of overrides cannot be written.", "Check the permissions of its folder."),
    store_unavailable=("The store of streams cannot be used.", "Try again; check the disk of the hub."),
)
"""Refusals over HTTP: `code` of `application/problem+json`, of `/readyz?verbose`, `data.code` of JSON-RPC errors."""

OUTPUT: Final = _table(
    malformed_call=("A model's call breaks the rules of its format.", "Send the message back to the model."),
    truncated_call=("A model's text ends inside a call.", "Let the model write more, or ask it again."),
)
"""Mistakes in the output of a model: `code` of its `error` events; those about arguments are in `CALLS`,
`unknown_tool` is in `COMMANDS`."""

COMMANDS: Final = _table(
    usage=("Options or arguments do not fit together.", "See `--help` of the command."),
    unknown_server=("There is not a server of this name.", "Use a configured name: `mcp-hub list`."),
    unknown_tool=("There is not a tool of this name.", "Use a listed name: `mcp-hub tools`."),
    unknown_profile=("There is not a profile of this name, or you may not use it.", "Correct the name."),
    unknown_client=("There is not a client of this name.", "Use a known one, or add it to `hub.clients`."),
    invalid_hub_url=("The value is not the URL of a hub.", "Write it as http://127.0.0.1:8765."),
    not_a_hub=("The server at the URL is not a hub.", "Check --url."),
    no_running_hub=(
        "No hub serves the configuration over HTTP.",
        "Start one with `mcp-hub serve --http`, or name one with --url.",
    ),
    hub_outdated=("The running hub has not read this version of the file.", "Run `mcp-hub reload`, or add --local."),
    refused_by_hub=("The hub refused the request.", "Read its message."),
    cannot_listen=("The address cannot be listened on.", "Choose another one with --host and --port."),
    store_in_memory=(
        "Streams are kept in the memory of the hub that runs.",
        "Start `mcp-hub serve --http`, or ask a hub with --url.",
    ),
    unknown_parameter=("The tool or prompt does not have this parameter.", "Correct its name; see `mcp-hub tools`."),
    missing_parameter=("The tool or prompt needs an argument that is missing.", "Add it as KEY=VALUE."),
    output_exists=("The file to write exists already.", "Choose another one with --output."),
    output_unwritable=(
        "The file or folder cannot be written.",
        "Check its folder, or choose another one with --output.",
    ),
    state_unreadable=("A file of approvals cannot be read.", "Remove it with `mcp-hub approve --forget`."),
    state_unwritable=("A file of approvals cannot be written.", "Check its permissions and the disk."),
    no_dashboard=("The running hub does not have a dashboard.", "Set `hub.http.dashboard`."),
    no_browser=("There is no browser to open.", "Print the address with `mcp-hub open --print`."),
    no_terminal=("The command cannot ask: stdin is not a terminal.", "Add --yes."),
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
