"""The form of the tables, and codes of configurations, calls, HTTP, and model output."""

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Advice(NamedTuple):
    """A meaning and a fix, with SERVER for the server's name."""

    meaning: str
    fix: str

    def fix_of(self, server: str) -> str:
        """The fix for this server, quoted for a shell."""
        return self.fix.replace(" SERVER`", f" {shlex.quote(server)}`")


def table(**rows: tuple[str, str]) -> Mapping[str, Advice]:
    return MappingProxyType({code: Advice(*row) for code, row in rows.items()})


CONFIGURATION: Final = table(
    config_not_found=("The configuration file does not exist.", "Create it, or name it with --config."),
    config_unreadable=("The file cannot be read.", "Check its permissions, and that it is a regular file."),
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
    unknown_key=("No key has this name.", "Correct or remove the key."),
    not_foreign=("The file is not one of another client.", "Use it with --config as it is."),
    workspace_unknown=(
        "A file of the user names a folder or value that only the client knows.",
        "Write the folder or the value, or use the file of a project.",
    ),
    file_not_named=(
        "A file of another client was only found, so its servers get nothing from outside.",
        "Name the file: `--config FILE`, or import it: `mcp-hub import FILE`.",
    ),
    line_skipped=("A line of a file of variables sets no variable.", "Write `NAME=value`, or begin the line with `#`."),
    ignored_key=("A key of another client was ignored.", "Remove it, or use the hub's own key."),
    duplicate_key=("A key occurs twice.", "Remove one of them."),
    missing_key=("A key is missing that is needed, also by another key.", "Add the key."),
    misplaced_key=("A key does not apply here.", "Remove the key, or move it."),
    conflicting_keys=("Two keys say the same or contradict each other.", "Keep one of them."),
    wrong_type=("The value has the wrong type.", "Write a value of the expected type."),
    out_of_range=("The value is too small, too large, too short or too long.", "Use a value within the limits."),
    invalid_value=("The value cannot be used.", "Write what the message expects."),
    invalid_url=("The value is not a URL that can be used.", "Write http:// or https:// with a host."),
    cleartext_url=("Others on the network can read http://.", "Use https://."),
    windows_program=(
        "A client on Windows starts a program that is not there in the Linux of the hub.",
        "Leave the server with its client, or add one that starts a program of Linux.",
    ),
    windows_path=(
        "A server of a client on Windows has a path that this Linux does not have.",
        "Write the path that it has here, with `mcp-hub add`.",
    ),
    windows_variable=(
        "A server of a client on Windows has a variable of Windows.",
        "Write its value in the client, or add the server with `mcp-hub add`.",
    ),
    invalid_placeholder=("A `${…}` cannot be understood.", "Write ${VAR}, ${VAR:-default} or ${file:path}."),
    variable_not_set=("An environment variable is not set.", "Set it, or give a default: ${VAR:-default}."),
    file_unreadable=(
        "The file of a `${file:…}` cannot be read.",
        "Write the value into it, or check its path and permissions.",
    ),
    file_untrusted=("Another user can write the file.", "Take away others' right to write."),
    secret_readable=("Other users can read the file of a secret.", "Take away their right: chmod go-rwx."),
    secret_in_arguments=("Arguments of processes show up in `ps`.", "Give secrets by `env`."),
    client_in_code=(
        "A shell or an interpreter reads the folder of a client as code.",
        "Set a variable by `env`, and use that in the code.",
    ),
    guessable_token=("A token is so short that it can be guessed.", "Use 16 characters or more."),
    keyring_unavailable=(
        "The keyring cannot be used or lacks the entry.",
        "Unlock the keyring, store the entry, or install the extra `keyring`, as the message says.",
    ),
    command_refused=(
        "The commands of `${cmd:…}` are not run from this file.",
        "Run the `chmod` of the message, or name the file by --config.",
    ),
    not_installed=("An optional package is not installed.", "Install the extra that the message names."),
    code_unavailable=(
        "Scripts of `run_code` cannot run: the extra `code` is not installed.",
        "Install it with the command of the message, or set `hub.code: off`.",
    ),
    nobody_to_ask=(
        "A rule asks people, and none of them can answer.",
        "Set `hub.ask_webhook`, or `hub.http.dashboard: full` (docs/call-approvals.md).",
    ),
    no_claims=(
        "A condition looks at claims, and no caller has any.",
        "Set `hub.http.oauth`, or take `principal` or `client` in the condition.",
    ),
    duplicate_name=("Two things have the same name.", "Rename one of them."),
    duplicate_token=("Two tokens are the same.", "Generate another one."),
    name_taken=("The name is taken.", "Choose another name, or restart the hub."),
    name_too_long=("A tool's name is longer than `hub.max_name_length`.", "Shorten it, or raise the limit."),
    budget_too_small=("The hub's own tools need more than `budget`.", "Raise it, or set `expose: search`."),
    no_servers=("The configuration has no servers.", "Add one."),
    sandbox_path=(
        "A path of a sandbox does not exist, or stays closed because it is a secret place.",
        "Correct the path, create it, or name it under `read` of `sandbox`.",
    ),
    sandbox_narrowed=(
        "A part of another client's sandbox has no counterpart here. The server may do less.",
        "Add what it needs to `sandbox` of the server.",
    ),
    sandbox_variable=(
        "`env` has a variable that the sandbox sets itself.",
        "Remove it. A proxy for limited hosts belongs into the environment of the hub.",
    ),
    public_without_tokens=(
        "Everybody who reaches the address could run your tools.",
        "Set `hub.tokens` or `hub.http.oauth`, or `hub.http.allow_public` if a proxy checks the clients.",
    ),
    overlay_in_vain=("`.mcp-hub.yaml` has a name that is not for projects.", "Correct it, or set `enabled: project`."),
    unmatched_pattern=("A pattern matches nothing that the servers list.", "Correct or remove it."),
    server_not_ready=("A server is not ready, so nothing was compared with it.", "See `mcp-hub doctor`."),
    tool_not_approved=(
        "A tool, a prompt, a resource template or the instructions of a server are new or have changed.",
        "Look at it, and approve it: `mcp-hub approve`.",
    ),
    script_invalid=(
        "A script is not a tool: it is not Python, or its `main` does not fit.",
        "Correct it where it says.",
    ),
    script_unknown_tool=("A script uses a name that no tool has.", "Correct the name, or define it."),
    edit_not_approved=(
        "A page of the dashboard proposes an edit of the configuration. It starts nothing yet.",
        "Look at it, and approve or reject it: `mcp-hub approve`.",
    ),
    suspicious_tool=(
        "A description or another text looks like an attack.",
        "Look at it before you use it.",
    ),
)
"""Findings about a configuration: `mcp-hub check`, start and reload."""

CALLS: Final = table(
    parse_error=("The message is not JSON, or too large or too deep.", "Correct the client."),
    invalid_request=("The message is not a valid JSON-RPC request.", "Correct the client."),
    method_not_found=("The hub or the server does not have the method.", "Do not call it."),
    invalid_params=("The parameters do not fit.", "Correct them as the message says."),
    unknown_state=(
        "The `requestState` of a repeated request was used, has expired, or belongs to another request.",
        "Do not repeat it. Where the call has a stream, its ending is there.",
    ),
    invalid_arguments=("A model's arguments are not a JSON object.", "Call again with one."),
    arguments_too_large=("A model's arguments have more than 1 MiB.", "Send less."),
    arguments_too_deep=("A model's arguments have more than 50 levels.", "Send flatter ones."),
    output_failed=("The provider reported an error in a model's output.", "See its message."),
    header_mismatch=("HTTP headers and the body do not agree.", "Correct the client."),
    missing_capability=("The client did not declare a capability.", "Declare what `data` names."),
    unsupported_version=("The protocol version is not supported.", "Use one that `data.supported` names."),
    unknown_entry=("No tool, resource or prompt has this name.", "List again; `data.nearest` names similar ones."),
    tool_removed=("The tool was listed and no longer is.", "List again; `data.nearest` names similar ones."),
    not_read_only=("`read_tool` runs tools that are known to only read.", "Run the tool by `run_tool`."),
    not_approved=("The tool or prompt is held back until a person approves it.", "Approve it: `mcp-hub approve`."),
    unknown_stream=("The stream expired, belongs to another user or never existed.", "Call again."),
    events_gone=("Events behind the cursor are no longer kept.", "Read from `earliest` on."),
    code_not_stored=(
        "A script was ended since its state could not be stored; nothing was sent after the last stored state.",
        "Look at the store (`mcp-hub status`), then run the script again; `data.calls` has its calls.",
    ),
    code_snapshot_too_large=(
        "The state of a script is over `hub.code_limits.snapshot`.",
        "Keep less in variables, or raise the limit.",
    ),
    code_limit=("A script reached a limit of `hub.code_limits`, which `data.limit` names.", "Do less, or raise it."),
    code_crashed=("The process that runs a script was lost three times.", "Report it; `data.calls` has its calls."),
    code_not_resumable=(
        "A script of a lost hub cannot be continued: its state is damaged, or of another engine.",
        "See in `data.calls` which calls were made, then run the rest.",
    ),
    upstream_unavailable=("The server is not ready; nothing was sent.", "Retry later; `data.upstream.code` says why."),
    upstream_crashed=(
        "The connection to the server was lost during the call.",
        "Check whether the call took effect, then retry.",
    ),
    upstream_refused=(
        "The server answered with an HTTP status.",
        "Wait `retryAfter` s if it has them, else see `data.upstream.code`.",
    ),
    account_needed=(
        "The server has an account for each caller, and the caller does not have one yet; nothing was sent.",
        "Log in, or set the values that the message names, then call again.",
    ),
    upstream_error=("The server broke the protocol.", "Report it to the authors of the server."),
    client_error=("The client sent an invalid answer to a question.", "Correct the client."),
    tool_error=("The server answered with an error, which is relayed.", "See `jsonrpc`."),
    deadline_exceeded=("The call took too long.", "Raise the limit that `data.limit` names."),
    busy=("A limit of the hub is reached; nothing was done.", "Wait `retryAfter` s, or raise `setting`."),
    cancelled=("Another client cancelled the call.", "Call again if it is still needed."),
    hub_stopped=("The hub stopped during the call.", "Check whether the call took effect, then retry."),
    hub_restarted=("The hub that ran the call is gone.", "Check whether it took effect, then retry."),
    session_elsewhere=(
        "Another replica has the session's process of the server (`scope: session`).",
        "Use a balancer with sticky sessions.",
    ),
    owner_lost=("The replica that ran the call is gone.", "Check whether it took effect, then retry."),
    executor_lost=("The client that executes the tool is gone.", "Check whether the call took effect."),
)
"""Errors of calls: `data.code` of the hub's own JSON-RPC errors, and `code` of `error` events and REST problems."""

HTTP: Final = table(
    unauthorized=("A valid bearer token is required.", "Send `Authorization: Bearer` with a token."),
    invalid_token=("The access token is not valid for this hub.", "Get a new one; check issuer and audience."),
    insufficient_scope=("The access token lacks a scope or a profile.", "Ask for the scopes in the challenge."),
    keys_unavailable=("The keys of the token's issuer cannot be fetched.", "Try again later."),
    token_in_query=("A token in a URL would be logged.", "Send it as a header."),
    token_required=("The request needs a token of `hub.tokens`.", "Configure and send one."),
    profile_bound=("The token belongs to one profile.", "Use a token without a profile."),
    operator_required=(
        "The request is for operators of the whole hub.",
        "Use a token with `operator: true`, or `mcp-hub open`.",
    ),
    origin_not_allowed=("The Origin is not allowed.", "Add it to `hub.http.cors` or `hub.http.allowed_origins`."),
    host_not_served=("The Host is not served here.", "Add it to `hub.http.allowed_hosts`."),
    misdirected=("Request target and Host header name different hosts.", "Correct the client."),
    repeated_header=("A header occurs more than once.", "Send it once."),
    missing_header=("A header is missing.", "Send it."),
    invalid_header=("A header has a value that cannot be used.", "Correct it."),
    head_too_large=("Request line and headers are too large.", "Send less, or raise `hub.http.max_headers`."),
    body_too_large=("The body is over the limit.", "Send less, or raise `hub.http.max_body`."),
    no_connection=("The server has no connection: it is a part of the hub.", "See its calls."),
    proposals_full=("Too many edits of the dashboard wait for a person.", "Approve or withdraw one of them."),
    entry_changed=("Somebody has changed or removed the server in the meantime.", "Load its entry again."),
    not_on_this_machine=(
        "The dashboard changes servers only where nobody but this machine reaches the hub.",
        "Change the configuration file, or use `mcp-hub add`.",
    ),
    overrides_too_large=("The dashboard's overrides have too many tools or bytes.", "Take some back first."),
    too_large=("A post of an executor is over the limit.", "Send less: an event has at most 256 KiB."),
    malformed_request=("The request is not HTTP/1.1.", "Correct the client."),
    request_timeout=("The request did not arrive in time.", "Send it faster, or raise the limit."),
    unsupported_media_type=(
        "The Content-Type is not supported.",
        "Send `Content-Type: application/json`, and no `Content-Encoding`.",
    ),
    not_acceptable=("Accept names nothing that can be sent.", "Name the media type of the message."),
    method_not_allowed=("The path does not take this method.", "Use one that `Allow` names."),
    not_found=("The hub does not serve this path.", "See /v1/openapi.json; the MCP endpoint is /mcp."),
    session_required=("The request needs a session.", "Send `initialize` first."),
    unknown_session=("The session no longer exists.", "Send `initialize` again."),
    unknown_event=("The hub does not know the event id.", "Call again."),
    malformed=("A post of an executor cannot be understood.", "Correct the executor."),
    invalid_body=("The body does not fit the schema.", "See /v1/openapi.json."),
    invalid_parameter=("A query parameter has a value that cannot be used.", "Correct it."),
    invalid_cursor=("The cursor is not the number of an event.", "Use one that the hub gave."),
    invalid_idempotency_key=("The Idempotency-Key cannot be used.", "Use 1 to 255 ASCII characters."),
    idempotency_unsupported=("The path does not take an Idempotency-Key.", "Leave it out; see the message."),
    idempotency_key_reused=("The Idempotency-Key belongs to another request.", "Use a new key."),
    unknown_format=("The format is not known.", "Use one that the message names."),
    unsupported_tool=("The format cannot carry a tool.", "Rename it, or select others."),
    too_many_tools=("The provider does not take so many tools.", "Select some: `tools=`, `profile=`, `expose=search`."),
    deferral_unsupported=("The format cannot defer tools.", "Use `expose=search`, or another format."),
    grouping_unsupported=(
        "The format does not have groups of tools.",
        "Leave out `group=`, or use `openai-responses`.",
    ),
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
    link_expired=(
        "The link of a login was used, has expired, is not complete, or its account was removed.",
        "Call the tool again: it gives a new link.",
    ),
    login_unknown=("The login was not begun by this browser or caller, or it has ended.", "Begin it again."),
    login_unavailable=(
        "The server has no login of each caller, or a browser cannot reach the hub.",
        "Set `account: own` and `hub.accounts.key`, and `hub.http.public_url` unless the hub listens on this machine.",
    ),
    code_wrong=("The code is not the one that the last page of the login shows.", "Enter that one; three tries."),
    value_unfit=("The value is empty, too long, or has characters that cannot be sent.", "Enter it on one line."),
    unknown_question=("The question is not open.", "Read the stream's open questions."),
    unknown_executor_or_call=("The executor or the call is not known.", "Register again."),
    no_executors=("The hub takes no executors.", "Configure tools that clients execute."),
    not_waiting=(
        "No such call waits for a yes: it was answered, has ended, or is of somebody else.",
        "Nothing, or call again.",
    ),
    not_yours=("The call waits for a yes of somebody else.", "Log in as its principal by the link, or as an operator."),
    unknown_event_type=("No server has events of this type for the caller.", "List them: GET /v1/events."),
    event_forbidden=(
        "The type of events waits for approval, or its server refuses the caller.",
        "Approve it: `mcp-hub approve`.",
    ),
    too_many_subscriptions=("The server, or the hub, has too many subscriptions.", "End some, or try again later."),
    event_unsupported=("The server does not have this way or form of events.", "See its type in GET /v1/events."),
    event_refused=("The server refused the subscription.", "See the reason."),
    code_off=(
        "The caller may not run scripts.",
        "Switch scripts on, for everybody or for the profile of the caller (docs/code.md).",
    ),
    server_disabled=("The server is disabled in the configuration.", "Set `enabled: true`."),
    invalid_configuration=("The file cannot be used; the hub keeps its settings.", "See `findings`."),
    stream_ended=("The call has ended.", "Read its result."),
    not_in_history=("The history does not have this call, or it belongs to another user.", "List the calls again."),
    not_runnable=(
        "The call cannot be made again as it was; `reason` says why.",
        "Call the tool with arguments of your own.",
    ),
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
    read_only=("The dashboard is read-only.", "Set `hub.http.dashboard: full`."),
    changed_meanwhile=("The tool is not waiting with the definition that was approved.", "Review it again."),
    login_required=(
        "The dashboard wants a login at the OpenID provider, or a token.",
        "Log in on the page, or open it with `mcp-hub open`.",
    ),
    login_refused=(
        "Who has logged in at the OpenID provider is let in by no rule.",
        "Name the person, or a group, under `allow_if` of `hub.http.dashboard.login`.",
    ),
    login_running=("Somebody is logging in to the server already.", "Finish or end that login first."),
    overrides_unwritable=("The file of overrides cannot be written.", "Check the permissions of its folder."),
    store_unavailable=("The store of streams cannot be used.", "Try again; check the disk of the hub."),
)
"""Refusals over HTTP: `code` of `application/problem+json`, of `/readyz?verbose`, `data.code` of JSON-RPC errors."""

OUTPUT: Final = table(
    malformed_call=("A model's call breaks the rules of its format.", "Send the message back to the model."),
    truncated_call=("A model's text ends inside a call.", "Let the model write more, or ask it again."),
)
"""Mistakes in the output of a model: `code` of its `error` events; those about arguments are in `CALLS`,
`unknown_tool` is in `COMMANDS`."""
