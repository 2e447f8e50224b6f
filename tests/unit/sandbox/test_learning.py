"""Learning runs: what is noted of a real process, and the rule that is proposed from it."""

import os
import socket
from pathlib import Path

import anyio
import pytest

from mcp_hub.addresses import HostRule
from mcp_hub.cli.commands.servers.sandbox import proposed_value, remarks
from mcp_hub.config.schema.defaults import SandboxSettings
from mcp_hub.masking import forget, learn
from mcp_hub.sandbox.confinement import ABI_LIMIT, READ, Confinement, PathRight
from mcp_hub.sandbox.filters import ARCHITECTURES, OBSERVED, REFUSED, seccomp_filter
from mcp_hub.sandbox.learning import PATHS, TARGETS, Learning, Sighting, _MakeProxy
from mcp_hub.sandbox.network.dial import HostPort, Observe
from mcp_hub.sandbox.network.interface import Proxy
from mcp_hub.sandbox.network.proxy import HostProxy
from mcp_hub.sandbox.proposal import MOST, Proposal, fold, proposal
from mcp_hub.sandbox.rules import Rule, Subject, Surroundings
from tests.unit.sandbox.confined import PYTHON, SECONDS, TRY, listener, needs_sandbox, python, sandbox_of, spawned
from tests.unit.sandbox.proxied import answers, host
from tests.unit.sandbox.test_filters import ALLOW, EACCES, NOTIFY, STREAM, UNIX, run


class NoProxy:
    """A proxy that reaches nothing."""

    async def run(self) -> None:
        """Nothing to do."""

    def serve(self, connection: socket.socket, *_: object) -> None:
        """Closes it."""
        connection.close()


def no_proxy(*, observe: Observe) -> Proxy:
    return NoProxy()


def learned(home: Path, confinement: Confinement | None = None, *, make: _MakeProxy = no_proxy) -> Learning:
    """A learning run of a user with this home folder, in which nothing has happened yet."""
    learning = Learning(make)
    around = Surroundings(str(home), (str(home / "state"),), str(home / "own/servers.yaml"))
    subject = Subject("/bin/sh", (), {"PATH": "/usr/bin:/bin"}, "/", around)
    rule = confinement or Confinement((PathRight("/usr", READ),), "any", 7, "x86_64")
    learning.begin(subject, rule)
    return learning


def note(table: dict[str, Sighting], learning: Learning, *paths: Path | str, is_folder: bool = False) -> None:
    for path in paths:
        learning.note(table, str(path), lambda: "node server.js", is_folder=is_folder)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_filter_of_a_learning_run_hands_over_paths_and_refuses_what_it_refused(machine: str) -> None:
    architecture, observed = ARCHITECTURES[machine], OBSERVED[machine]
    code = seccomp_filter(machine, "any", 7, has_sockets=True, observes=True)

    def verdict(number: int, *arguments: int) -> str | int:
        return run(code, architecture.audit, number, arguments)

    assert {verdict(number) for number in observed.values()} == {NOTIFY}
    refused = {name: number for name, number in architecture.numbers.items() if name in REFUSED}
    assert {name for name, number in refused.items() if verdict(number) in (ALLOW, NOTIFY)} == set()
    assert verdict(architecture.numbers["socket"], UNIX, STREAM, 0) == NOTIFY
    assert verdict(architecture.numbers["socket"], UNIX, 2, 0) == NOTIFY  # the supervisor refuses datagrams
    assert verdict(architecture.numbers["connect"], 3, 0, 16) == NOTIFY
    assert verdict(architecture.numbers["listen"], 3, 5) == ALLOW
    closed = seccomp_filter(machine, "none", 7, has_sockets=True, observes=True)
    assert run(closed, architecture.audit, architecture.numbers["socket"], (2, STREAM, 0)) == EACCES


@needs_sandbox()
@pytest.mark.processes
@pytest.mark.anyio
async def test_learning_run_notes_files_programs_and_sockets_and_refuses_keys(tmp_path: Path) -> None:
    user = tmp_path / "user"
    for name in (".ssh", "data", "bin", "run", "code"):
        (user / name).mkdir(parents=True)
    for name in (".ssh/id_rsa", "data/a", "data/b", "data/old", "seen"):
        (user / name).write_text("text")
    (user / "bin/tool").symlink_to("/bin/true")
    (user / "bin/own").write_text("#!/bin/sh\n")
    (user / "bin/own").chmod(0o755)
    (user / "data/link").symlink_to(user / ".ssh/id_rsa")
    learning = Learning(no_proxy)
    sandbox = sandbox_of(tmp_path, Rule(read=("~/seen",), write=()), learning=learning)
    with (
        listener(user / "run/agent"), listener(user / "run/docker.sock"),
        socket.create_server(("127.0.0.1", 0)) as server,
    ):  # fmt: skip
        port = server.getsockname()[1]
        code = f"""
import threading
os.chdir("{user}/data")
attempt("relative", open, "a")
attempt("at", lambda: os.open("b", os.O_RDONLY, dir_fd=os.open(".", os.O_RDONLY)))
attempt("allowed", open, "{user}/seen")
attempt("absent", open, "{user}/absent")
attempt("key", open, "{user}/.ssh/id_rsa")
attempt("link", open, "link")
attempt("self", open, "/proc/self/root{user}/.ssh/id_rsa")
attempt("new", os.makedirs, "{user}/out/deep")
attempt("changed", open, "old", "a")
attempt("compiled", os.makedirs, "{user}/code/__pycache__")
attempt("cached", open, "{user}/code/__pycache__/module.pyc", "w")
attempt("renamed", os.rename, "old", "older")
attempt("program", subprocess.run, ["{user}/bin/own"])
attempt("linked", subprocess.run, ["{user}/bin/tool"])
attempt("tcp", socket.create_connection, ("127.0.0.1", {port}))
attempt("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("127.0.0.1", 9)))
def ask(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        return len(s.recv(500))
attempt("agent", ask, "../run/agent")
attempt("docker", ask, "{user}/run/docker.sock")
os.link("{user}/run/docker.sock", "{user}/run/linked")
attempt("hard-link", ask, "{user}/run/linked")
os.rename("{user}/run/docker.sock", "{user}/run/renamed")
attempt("renamed-socket", ask, "{user}/run/renamed")
attempt("abstract", ask, "\\0x")
attempt("ptrace", lambda: libc.ptrace(0, 0, 0, 0))
threading.Thread(target=lambda: attempt("thread", open, "{user}/data/a")).start()
"""
        outcome = dict(line.split() for line in (await python(sandbox, TRY + code)).splitlines())
    engines = ("hard-link", "renamed-socket")
    refused = {
        "absent": "2",
        **dict.fromkeys(("key", "link", "self", "docker", "abstract", *engines), "13"),
        "ptrace": "1",
    }
    assert {name: result for name, result in outcome.items() if result != "open"} == refused
    assert set(learning.reads) == {f"{user}/{name}" for name in ("data", "data/a", "data/b", "bin/own")}
    assert set(learning.writes) == {str(user), f"{user}/out", f"{user}/data/old", f"{user}/data", f"{user}/run"}
    assert set(learning.secrets) == {f"{user}/.ssh/id_rsa", f"{user}/run/docker.sock"}
    assert learning.secrets[f"{user}/run/docker.sock"].count == 3
    assert (learning.secrets[f"{user}/.ssh/id_rsa"].count, set(learning.sockets)) == (3, {f"{user}/run/agent"})
    assert (set(learning.addresses), learning.missed.unseen) == ({f"127.0.0.1:{port}"}, 0)
    assert os.path.basename(PYTHON) in learning.secrets[f"{user}/.ssh/id_rsa"].program
    proposed = proposal(learning, None)
    assert proposed.read == (f"{user}/bin/own",) and proposed.write == (f"{user}/data", f"{user}/out")
    assert proposed.refused[:1] == ((str(user), "it is or contains the home folder"),)
    assert [path for path, _ in proposed.refused[1:]] == [f"{user}/run"]


@needs_sandbox()
@pytest.mark.processes
@pytest.mark.anyio
@pytest.mark.parametrize("abi", [1, 5, 7])
async def test_learning_run_reads_no_other_process_and_no_terminal(
    tmp_path: Path, abi: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "user/from").mkdir(parents=True)
    (tmp_path / "user/from/file").write_text("text")
    others = sandbox_of(tmp_path).prepare(["/bin/sleep", "60"], {"KEY": "secret"}, "/", is_spare=False)
    assert others is not None
    process, terminals = spawned(others), os.openpty()
    try:
        async with anyio.create_task_group() as tasks:
            with anyio.fail_after(SECONDS):
                await others.begin(tasks)  # it executes the command
            tasks.cancel_scope.cancel()
        monkeypatch.setenv(ABI_LIMIT, str(abi))
        learning = Learning(no_proxy)
        sandbox = sandbox_of(tmp_path, Rule(write=()), learning=learning)
        code = f"""
attempt("environ", lambda: open("/proc/{process.pid}/environ").read())
attempt("memory", open, "/proc/{process.pid}/mem", "rb")
attempt("terminal", open, "{os.ttyname(terminals[1])}", "w")
attempt("moved", os.rename, "{tmp_path}/user/from/file", "{tmp_path}/user/file")
attempt("read", open, "{tmp_path}/user/file")
"""
        lines = (await python(sandbox, TRY + code)).splitlines()
    finally:
        process.kill()
        process.communicate()
        for descriptor in terminals:
            os.close(descriptor)
    moved = ["moved 18", "read 2"] if abi == 1 else ["moved open", "read open"]  # EXDEV: programs copy then
    assert lines == ["environ 13", "memory 13", "terminal 13", *moved]


def test_folders_stand_for_what_is_used_in_them() -> None:
    def entries(folder: str) -> int | None:
        return None if folder in ("/", "/h") else 8 if os.path.dirname(folder) == "/h" else 3

    many = {f"/h/many/{number}/f": False for number in range(400)}
    rows: list[tuple[dict[str, bool], list[str]]] = [
        ({"/h/a/b/f": False, "/h/a/b/g": False}, ["/h/a/b/f", "/h/a/b/g"]),
        ({f"/h/a/b/{name}": False for name in "fgh"}, ["/h/a/b"]),
        ({f"/h/a/b/{name}/deep/f": False for name in "fgh"}, ["/h/a/b"]),
        ({"/h/a": True, "/h/a/f": False, "/h/ab": False}, ["/h/a", "/h/ab"]),
        ({f"/h/{name}/f": False for name in "abcdefghijk"}, [f"/h/{name}/f" for name in "abcdefghijk"]),
        (many, ["/h/many"]),
    ]
    assert [sorted(fold(used, entries)) for used, _ in rows] == [expected for _, expected in rows]


def test_proposal_never_holds_secrets_or_what_is_too_wide(tmp_path: Path) -> None:
    home = tmp_path / "user"
    for name in (".ssh", "work/sub", "other", "state", "own", ".config/app", "clean"):
        (home / name).mkdir(parents=True)
    (home / "work/sub/.env").write_text("KEY=1")
    (home / "own/servers.yaml").touch()
    learning = learned(home)
    note(learning.secrets, learning, home / ".ssh/id_rsa", home / "clean/run/docker.sock")
    wide = (home, home.parent, "/", "/tmp", "/var", home / ".config", home / "work", home / "state/x", "/dev/kvm")
    note(learning.reads, learning, *wide, is_folder=True)
    note(learning.reads, learning, *(home / f"work/file{number}" for number in range(5)))
    odd = ("odd\n\x1b[31mred", "glob*", "bytes\udcff", "${XDG_WORK:-.ssh}", "rtl\u202etxt")
    note(learning.reads, learning, *(home / name for name in odd))
    (home / "turned").symlink_to(home / ".ssh")  # after it was used
    note(learning.reads, learning, home / "turned", home / "turned/key")
    note(learning.sockets, learning, home / "turned/agent", home / "${XDG_WORK:-run}/agent")
    note(learning.reads, learning, *(home / f"clean/file{number}" for number in range(5)))
    (home / "shop/in\nside").mkdir(parents=True)
    (home / "shop/in\nside/.env").touch()
    learning.note(learning.secrets, str(home / ".ssh/x\u202e"), lambda: "node\nNothing else.", is_folder=False)
    learning.note(learning.reads, str(home / "shop"), str, is_folder=True)
    note(learning.writes, learning, home / "own", home / ".bashrc", home / "other", is_folder=True)
    proposed = proposal(learning, None)
    assert proposed.write == (str(home / "other"),)
    files = [home / folder / f"file{number}" for folder in ("clean", "work") for number in range(5)]
    assert proposed.read == tuple(map(str, files))  # not their folders, which hold secrets
    reasons = dict(proposed.refused)
    assert {str(path) for path in wide} <= reasons.keys() and len(reasons) == len(wide) + 12
    assert proposed.sockets == ()
    lines = [text for text, _ in remarks(learning, proposed)]
    assert any("id_rsa, by node server.js (1 time)" in line for line in lines)
    assert any("socket" in line and "docker.sock" in line for line in lines)
    assert not any("KEY" in line for line in lines) and all(line.isprintable() for line in lines)


def test_notes_and_proposals_are_bounded_and_masked(tmp_path: Path) -> None:
    home = tmp_path / "user"
    home.mkdir()
    learning = learned(home)
    note(learning.reads, learning, *(home / f"f{number}" for number in range(PATHS + 10)))
    note(learning.secrets, learning, *(home / f".ssh/{number}" for number in range(TARGETS + 5)))
    for number in range(TARGETS + 1):
        learning.note_address(f"192.0.2.1:{number}", str)
    assert (len(learning.reads), len(learning.secrets), learning.missed.beyond) == (PATHS, TARGETS, 16)
    proposed = proposal(learning, None)
    assert (len(proposed.read), len(proposed.refused)) == (MOST, PATHS - MOST)
    shown = list(remarks(learning, proposed))
    assert len(shown) < 80 and any("16 further uses could not be noted" in text for text, _ in shown)
    learn(["p4ssw0rd-in-a-path"])
    try:
        fresh = learned(home)
        note(fresh.reads, fresh, home / "p4ssw0rd-in-a-path")
        proposed = proposal(fresh, None)
        assert proposed.read == () and "p4ssw0rd" not in str(list(remarks(fresh, proposed)))
    finally:
        forget()


def test_value_repeats_what_a_list_replaces(tmp_path: Path) -> None:
    home = str(tmp_path)
    changes = Proposal(
        read=(f"{home}/a", "/srv/x"), write=(), sockets=("/run/agent",), replaced_read=(f"{home}/cwd",),
        replaced_write=(f"{home}/data",),
    )  # fmt: skip
    rows = [
        ({"mode": "off"}, Proposal(), "on"),
        ({"mode": "prefer"}, Proposal(), "prefer"),
        ({"mode": "off"}, changes, {"read": ["~/cwd", "~/a", "/srv/x"], "sockets": ["/run/agent"]}),
        ({"read": ["~/b"], "net": "none"}, changes,
         {"read": ["~/b", "~/a", "/srv/x"], "net": "none", "sockets": ["/run/agent"]}),
        ({"mode": "prefer"}, Proposal(write=("/o",), replaced_write=("/d",)),
         {"write": ["/d", "/o"], "mode": "prefer"}),
        ({"mode": "off"}, Proposal(net=()), {"net": "none"}),
        ({"net": ["a.example"]}, Proposal(net=("a.example", "b.example")), {"net": ["a.example", "b.example"]}),
        ({"read": ["/s/${A}"]}, Proposal(write=("/o",), replaced_write=("/${B}",)),
         {"read": ["/s/$${A}"], "write": ["/$${B}", "/o"]}),
    ]  # fmt: skip
    made = [proposed_value(SandboxSettings.model_validate(rule), added, home) for rule, added, _ in rows]
    assert made == [value for _, _, value in rows]
    for value in made:
        SandboxSettings.model_validate(value)


def test_hosts_are_proposed_only_if_everything_used_the_proxy(tmp_path: Path) -> None:
    index = HostRule("registry.example")
    limited = Confinement((), "hosts", 7, "x86_64", hosts=(index,))
    made: list[Observe] = []

    def make(*, observe: Observe) -> Proxy:
        made.append(observe)
        return NoProxy()

    learning = learned(tmp_path, limited, make=make)
    assert proposal(learning, ()).net == ("registry.example",)  # an empty list is not taken
    learning.proxy()
    made[0](HostPort("https", "registry.example", 443), "10.0.0.9")
    made[0](HostPort("https", "api.example", 8443), None)
    made[0](HostPort("http", "api.example", 80), None)
    assert proposal(learning, ()).net == ("10.0.0.9", "api.example", "api.example:8443")
    assert proposal(learning, ("a.example",)).net == ("a.example", "10.0.0.9", "api.example", "api.example:8443")
    assert proposal(learning, None).net is None
    learning.note_address("192.0.2.1:443", str)
    proposed = proposal(learning, ())
    assert proposed.net is None and "192.0.2.1:443" in dict(proposed.refused)


@needs_sandbox()
@pytest.mark.processes
@pytest.mark.anyio
async def test_hosts_are_learned_by_name_through_the_proxy(tmp_path: Path) -> None:
    async with host() as far:

        def make(*, observe: Observe) -> Proxy:
            return HostProxy(resolve=answers("127.0.0.1"), observe=observe)

        learning, rule = Learning(make), Rule(write=(), net="hosts", hosts=(HostRule("known.example"),))
        sandbox = sandbox_of(tmp_path, rule, NoProxy(), learning)
        code = f"import urllib.request as r\nprint(r.urlopen('http://api.example:{far.port}/').read().decode())"
        text = await python(sandbox, code)
    assert text == "hi"
    assert list(learning.hosts) == [f"api.example:{far.port}", f"127.0.0.1:{far.port}"]
    assert learning.addresses == {}
