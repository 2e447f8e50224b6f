"""The sandbox of macOS: the text of its profile, which nothing here applies, and its starts beside those of Linux."""

import os
import sys
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from mcp_hub.addresses import host_rule
from mcp_hub.errors import StartFailed
from mcp_hub.sandbox import launch
from mcp_hub.sandbox.confinement import READ, WRITE, Confinement, PathRight, Unsupported, support
from mcp_hub.sandbox.launch import profile, seatbelt_launch
from mcp_hub.sandbox.rules import Rule
from tests.unit.sandbox.confined import sandbox_of, spawned

EXPECTED = """\
(version 1)
(deny default)
(allow process-fork)
(allow process-info* (target same-sandbox))
(allow signal (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem)
(allow file-read-metadata)
(allow pseudo-tty)
(allow mach-lookup (global-name "com.apple.system.logger") (global-name "com.apple.logd") \
(global-name "com.apple.system.notification_center") (global-name "com.apple.trustd.agent") \
(global-name "com.apple.system.opendirectoryd.libinfo") (global-name "com.apple.system.opendirectoryd.membership") \
(global-name "com.apple.cfprefsd.agent") (global-name "com.apple.bsd.dirhelper"))
(allow file-read* process-exec file-map-executable (subpath "/usr") (subpath "/Users/me/a \\"b\\\\"))
(allow file-write* (subpath "/Users/me/a \\"b\\\\"))
(deny file-read* file-write* (subpath "/Library/Keychains") (subpath "/private/etc/master.passwd") \
(subpath "/private/etc/sudoers") (subpath "/private/etc/ssh"))
"""
NETWORK = """\
(allow network-outbound (remote ip "*:*"))
(allow network-bind network-inbound (local ip "*:*"))
(allow network-outbound (literal "/private/var/run/mDNSResponder"))
"""
GRANTS = (PathRight("/usr", READ), PathRight('/Users/me/a "b\\', READ | WRITE))


def test_a_profile_has_the_paths_and_the_network_of_the_rule() -> None:
    closed = Confinement(GRANTS, "none", 7, "darwin", sockets=("/private/tmp/agent",))
    assert profile(closed) == EXPECTED + '(allow network-outbound (literal "/private/tmp/agent"))\n'
    assert profile(Confinement(GRANTS, "any", 7, "darwin")) == EXPECTED + NETWORK


def test_a_start_on_macos_executes_the_command_under_its_profile() -> None:
    launch = seatbelt_launch(Confinement(GRANTS, "none", 7, "darwin"), ["/usr/bin/true", "-x"], {"A": "b"})
    assert launch.argv == ["/usr/bin/sandbox-exec", "-p", EXPECTED, "/usr/bin/true", "-x"]
    assert (launch.env, launch.descriptors) == ({"A": "b"}, ())


def test_macos_cannot_limit_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert support("any")[1] == "darwin"
    with pytest.raises(Unsupported):
        support("hosts")


STAND_IN = """\
#!/bin/sh
test "$1" = -p || exit 9
printf %s "$2" > "{folder}/profile"
shift 2
exec "$@"
"""
"""In place of `sandbox-exec`: it notes the profile, and limits nothing."""


@pytest.fixture(params=["linux", "darwin"])
def system(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Linux with its sandbox, and macOS with a stand-in for its program."""
    name = str(request.param)
    if name == "darwin":
        program = tmp_path / "sandbox-exec"
        program.write_text(STAND_IN.format(folder=tmp_path))
        program.chmod(0o755)
        monkeypatch.setattr(launch, "SANDBOX_EXEC", str(program))
        monkeypatch.setattr(sys, "platform", name)
    else:
        try:
            support("none")
        except Unsupported as problem:
            pytest.skip(str(problem))
    return name


@pytest.mark.anyio
@pytest.mark.processes
async def test_a_start_on_each_system_executes_the_command_as_it_is(system: str, tmp_path: Path) -> None:
    line = ["/bin/sh", "-c", 'printf "%s|" "$@" "$KEY" "$HOME"; exit 7', "sh", "a b", "", "c\"'$"]
    sandbox = sandbox_of(tmp_path, Rule(write=(), net="none"))
    start = sandbox.prepare(line, {"KEY": "of the entry", "PATH": "/usr/bin:/bin"}, "/", is_spare=False)
    assert start is not None
    descriptors = set(os.listdir("/proc/self/fd"))
    with anyio.fail_after(240), spawned(start) as process:
        async with anyio.create_task_group() as tasks:
            await start.begin(tasks)
            tasks.cancel_scope.cancel()
        assert process.stdout is not None
        output = process.stdout.read().decode()
        assert output == f"a b||c\"'$|of the entry|{tmp_path}/state/private/home|"
        assert process.wait() == 7
    start.launch.close()
    assert set(os.listdir("/proc/self/fd")) == descriptors
    if system == "darwin":
        assert (tmp_path / "profile").read_text() == profile(start.confinement)


def test_a_rule_that_a_system_does_not_have_is_refused_unless_it_is_preferred(system: str, tmp_path: Path) -> None:
    hosts = Rule(write=(), net="hosts", hosts=(host_rule("example.com"),))
    line, env = ["/bin/true"], {"PATH": "/usr/bin:/bin"}
    if system == "linux":
        start = sandbox_of(tmp_path, hosts).prepare(line, env, "/", is_spare=False)
        assert start is not None
        return
    with pytest.raises(StartFailed, match="net is none or any"):
        sandbox_of(tmp_path, hosts).prepare(line, env, "/", is_spare=False)
    preferred = sandbox_of(tmp_path, replace(hosts, is_preferred=True))
    assert preferred.prepare(line, env, "/", is_spare=False) is None and "net is none or any" in preferred.absence
