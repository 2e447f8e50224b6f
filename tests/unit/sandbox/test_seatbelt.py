"""The profile for macOS: its text, since nothing here runs it."""

import pytest

from mcp_hub.sandbox import confinement
from mcp_hub.sandbox.confinement import READ, WRITE, Confinement, PathRight, Unsupported, support
from mcp_hub.sandbox.seatbelt import SeatbeltLaunch, profile

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
    launch = SeatbeltLaunch(Confinement(GRANTS, "none", 7, "darwin"), ["/usr/bin/true", "-x"], {"A": "b"})
    assert launch.argv == ["/usr/bin/sandbox-exec", "-p", EXPECTED, "/usr/bin/true", "-x"]
    assert (launch.env, launch.descriptors) == ({"A": "b"}, ())


def test_macos_cannot_limit_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confinement.sys, "platform", "darwin")
    assert support("any")[1] == "darwin"
    with pytest.raises(Unsupported):
        support("hosts")
