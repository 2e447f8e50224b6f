"""The line of a rule that a refusal proposes: for which path or name, what it repeats, and when there is none."""

from pathlib import Path

from mcp_hub.sandbox.network.interface import HostRule, Refusals, refused_name
from mcp_hub.sandbox.rules import Rule
from mcp_hub.sandbox.server import refused_path
from tests.unit.sandbox.test_rules import home as home
from tests.unit.sandbox.test_rules import resolved


def test_advice_repeats_what_a_list_would_close(home: Path) -> None:
    data, path = str(home / "data"), str(home / "work/x")
    usual = resolved(home, args=[data], cwd=str(home / "work"))
    alone = resolved(home, Rule(write=()), [data], cwd=str(home / "project"), is_spare=True)
    rows = [
        (usual, "read", f'set read: ["{home}/work", "{path}"] in'),
        (usual, "write", f'set write: ["{data}", "{path}"] in'),
        (resolved(home, args=[data], cwd=str(home)), "read", f'set read: ["{path}"] in'),
        (alone, "read", f'set read: ["{data}", "{path}"] in'),
        (resolved(home, Rule(read=(data,), write=("~/a", "~/b"))), "read", f'set read: ["{data}", "{path}"] in'),
        (resolved(home, Rule(read=(data,), write=("~/a", "~/b"))), "write", f'set write: ["~/a", "~/b", "{path}"] in'),
    ]
    for rule, key, line in rows:
        assert rule.advice("read" if key == "read" else "write", path) == f"If it may, {line} its sandbox."
    secret = usual.advice("read", str(home / ".ssh/id"))
    assert f"{home}/.ssh is secret" in secret and "set" not in secret


def test_the_line_to_add_is_for_the_path_that_was_refused(home: Path) -> None:
    rule = resolved(home, args=[str(home / "data")])
    outputs = {
        f"PermissionError: [Errno 13] Permission denied: '{home}/work/x'": f'read: ["{home}/work/x"]',
        f"Error: EACCES: permission denied, open '{home}/work/a b.json'": f'read: ["{home}/work/a b.json"]',
        f"mkdir: cannot create directory ‘x’: Permission denied\ncat: {home}/work: Permission denied": "read: [",
        "touch: cannot touch '/usr/x': Permission denied": f'set write: ["{home}/data", "/usr/x"] in its sandbox.',
        f"EACCES '{home}/.ssh/id'": "is secret",
        f"EACCES '{home}/${{X:-.ssh}}'": "cannot stand in a rule",
        f"/usr/bin/env: can't open '/usr/x' of '{home}/work/x': Permission denied": f'read: ["{home}/work/x"]',
        "/usr/bin/env: can't open file 'x': Permission denied": None,
        f"Permission denied: '{home}/data/x'": None,
        f"cannot find {home}/work/x": None,
        "EACCES /no/such/folder/x": None,
        f'PermissionError: [Errno 13] Permission denied (exited with code 1). Last output: File "{home}/work/a.py", '
        "line 232, in connect | PermissionError: [Errno 13] Permission denied": None,
        f"exited with code 1. Last output: File '{home}/work/a.py' | EACCES '{home}/work/x'": f'["{home}/work/x"]',
    }
    (home / "repo/deep").mkdir(parents=True)
    (home / "repo/deep/.env").touch()
    for place in (home, home.parent, "/home", "/tmp", home / ".config", home / "state/x", home / "repo"):
        outputs[f"EACCES: permission denied, scandir '{place}'"] = None
    for output, line in outputs.items():
        refusals = Refusals()
        sentence = refused_path(output, rule, refusals)
        if "scandir" in output:  # too broad, or above keys: nothing to copy, here or in a list of servers
            refused = refusals.latest()
            assert sentence is not None and " set " not in sentence and not [one for one in refused if one.entry], (
                output
            )
            continue
        assert (line is None and sentence is None) or (sentence is not None and line is not None and line in sentence)


def test_the_line_to_add_is_for_the_name_that_a_server_could_not_look_up() -> None:
    outputs = {
        "cause: Error: getaddrinfo ENOTFOUND api.test.example": "api.test.example",
        "TypeError: fetch failed\n  code: 'EAI_AGAIN',\n  syscall: 'getaddrinfo',\n  hostname: 'a.test'": "a.test",
        "HTTPSConnectionPool(host='b.test', port=443): Failed to resolve 'b.test' ([Errno -3])": "b.test",
        "Cannot connect to host c.test:443 ssl:default [Temporary failure in name resolution]": "c.test",
        "httpx.ConnectError: [Errno -3] Temporary failure in name resolution\nGET https://d.test/x": "d.test",
        "curl: (6) Could not resolve host: E.test": "e.test",
        "dial tcp: lookup f.test on 127.0.0.53:53: no such host": "f.test",
        "error sending request for url (https://g.test/): failed to lookup address information": "g.test",
        "socket.gaierror: [Errno -2] Name or service not known": "add the hosts that it needs to net",
        "cannot reach https://h.test/": None,
        "": None,
    }
    for output, name in outputs.items():
        sentences = [refused_name(output, net, [HostRule("other.test")]) for net in ("none", "hosts")]
        assert all(sentence is None if name is None else name in str(sentence) for sentence in sentences), output
        assert refused_name(output, "any", []) is None
        whole = refused_name(output, "hosts", [HostRule("other.test")], ["other.test", "*.more.test"])
        assert whole is None or "add" in whole or f'set net: ["other.test", "*.more.test", "{name}"]' in whole
    allowed = refused_name("getaddrinfo ENOTFOUND api.test.example", "hosts", [HostRule("*.test.example")])
    assert allowed is not None and "HTTPS_PROXY" in allowed and "add" not in allowed
    assert "<b>" not in str(refused_name("getaddrinfo ENOTFOUND <b>.test", "none", []))
