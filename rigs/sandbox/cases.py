"""The escapes by kind: which rules they are tried under, and which the sandbox does not stop."""

from collections.abc import Sequence
from dataclasses import dataclass

ON, NONE, HOSTS, SOCKETS = "on", "none", "hosts", "sockets"
RULES = (ON, NONE, HOSTS)
CLOSED = (NONE, HOSTS)
PRIVATE = "private folder of another server, own settings"


@dataclass(frozen=True)
class Kind:
    """Escapes of one sort. `is_direct`: the control run starts the server without a hub, since a hub closes that way
    by itself.
    """

    title: str
    names: Sequence[str]
    rules: Sequence[str] = RULES
    is_direct: bool = False


def _all(prefix: str, names: str) -> list[str]:
    return [f"{prefix}-{name}" for name in names.split()]


PASSING = Kind(
    "not stopped",
    """
    stat names change-mode change-owner change-times read-attribute write-attribute link-target
    command-lines watch-folder process-exists list-hub-descriptors read-shm write-shared-memory hub-front
    """.split(),
    [ON],
)
"""What docs/sandbox.md says is not stopped."""
KINDS = (
    Kind(
        "files of the user, by path",
        [*_all("read", "ssh-key aws netrc gh cookies history npmrc project config state"), "list-home"],
    ),
    Kind(PRIVATE, ["read-private-home", "write-private-home", "write-settings"]),
    Kind(
        "another way to the same file",
        _all(
            "read",
            "dotdot chdir symlink symlinked-folder hard-link copied moved exchanged proc-root victim-root hub-root",
        )
        + _all("read", "victim-cwd victim-fd map-files by-child by-session by-loader by-worker by-detached")
        + [
            "reopen-path-descriptor",
            "open-below-path-descriptor",
            "fchdir-path-descriptor",
            "openat2",
            "openat2-in-root",
        ]
        + ["open-by-handle", "run-from-memory", "io-uring", "io-uring-open"],
    ),
    Kind(
        "what the user or the system runs later",
        _all("write", "bashrc profile bash-profile zshrc pythonrc authorized-keys ssh-config gitconfig git-hook npmrc")
        + _all("write", "npx-cache npm-cache uv-cache uv-tool local-bin user-customize node-modules systemd autostart")
        + _all(
            "write", "crontab cron-d preload passwd shadow profile-d vscode interpreter environment-packages program"
        )
        + _all("write", "own-code hub-package"),
    ),
    Kind(
        "other changes outside of the rule",
        _all("write", "config state project socket-folder through-symlink through-hard-link proc-root fifo")
        + _all("make", "folder symlink fifo socket device")
        + [
            "replace-file",
            "link-out",
            "truncate",
            "open-truncating",
            "remove-file",
            "rename-folder",
            "core-dump",
            "file-flags",
            "subvolume",
            "acct",
            "swap",
        ],
    ),
    Kind(
        "the system",
        _all("write", "core-pattern sysrq modprobe kernel-log disk cgroup oom-score comm uevent-helper binfmt")
        + _all("read", "disk kernel-log syslog")
        + [
            "write-own-uid-map",
            "load-module",
            "load-module-file",
            "load-kernel",
            "host-name",
            "port-access",
            "set-uid-program",
            "set-uid-bit",
        ]
        + ["no-new-privileges", "segment-table"],
    ),
    Kind(
        "namespaces", _all("unshare", "user network") + _all("clone", "user high-bits") + _all("clone3", "user plain")
    ),
    Kind(
        "mounts and roots",
        [
            "setns",
            "setns-pidfd",
            "setns-own",
            "mount-bind",
            "mount-proc",
            "open-tree",
            "fsopen",
            "mount-setattr",
            "chroot",
        ]
        + ["pivot-root"],
    ),
    Kind(
        "memory and environment of other processes",
        _all("read", "memory proc-mem environ hub-environ all-environs hub-maps hub-auxv")
        + _all("write", "memory proc-mem hub-clear-refs")
        + _all("ptrace", "attach seize hub traceme")
        + [
            "steal-descriptor",
            "compare-processes",
            "advise-memory",
            "move-pages",
            "perf-events",
        ]
        + ["user-fault", "bpf"],
    ),
    Kind(
        "signals, limits and priorities of other processes",
        ["signal", *_all("signal", "hub thread queued pidfd group by-owner"), *_all("limit", "other read")]
        + [
            "priority-other",
            "priority-user",
            "priority-user-number",
            "io-priority-user",
            "scheduler-other",
            "affinity-other",
            "io-priority-other",
        ],
    ),
    Kind(
        "objects that processes share",
        ["key-read", "key-search", "key-add", "shared-memory", "shared-memory-by-key", "message-queue", "semaphores"]
        + ["posix-queue"],
    ),
    Kind("terminals", [*_all("type", "into-terminal high-bits"), "read-terminal", "write-terminal"]),
    Kind(
        "what the hub holds at the start", ["inherited-descriptor", "environment", "standard-streams"], is_direct=True
    ),
    Kind(
        "sockets of this machine",
        _all("unix", "docker agent bus display hub-socket abstract datagram pair-datagram pair-connected pair-abstract")
        + ["unix-pair-high-bits", "listen-unix", "socket-unix", "socket-unix-datagram", "socket-high-bits"],
    ),
    Kind(
        "other families and protocols",
        _all(
            "socket",
            "sctp sctp-packets smc vsock packet alg xdp raw raw-ipv6 udp-lite bluetooth can rds tipc l2tp key dccp",
        )
        + _all("socket", "netlink-audit netlink-filter netlink-generic netlink-events netlink-sockets netlink-xfrm")
        + ["mptcp", "mptcp-ipv6", "mptcp-high-bits", "upper-layer", "tcp-repair"],
    ),
    Kind(
        "calls of other architectures",
        _all("32-bit", "open getpid socket socketcall ptrace") + _all("x32", "open socket"),
    ),
    Kind(
        "connections, `net: none` or hosts",
        _all(
            "tcp", "evil evil-80 evil-443 allowed-other-port loopback loopback-other any-address private metadata ipv6"
        )
        + _all(
            "tcp", "ipv6-loopback mapped dns proxy-port-elsewhere shell race reconnect nonblocking fetch by-name hub"
        )
        + ["fast-open", *_all("fast-open", "message messages high-bits option")],
        CLOSED,
    ),
    Kind(
        "datagrams, names and listeners, `net: none` or hosts",
        [
            "udp",
            "udp-connected",
            "udp-ipv6",
            "dns",
            "dns-library",
            "dns-resolver",
            "socket-ping",
            "listen",
            "listen-unbound",
        ]
        + ["inspector"],
        CLOSED,
    ),
    Kind(
        "other hosts through the proxy",
        _all(
            "proxy",
            "other-name other-name-http other-address other-port private-address private-name both-name metadata",
        )
        + _all(
            "proxy",
            "loopback localhost loopback-short loopback-number loopback-hex loopback-octal any-address loopback-ipv6",
        )
        + _all(
            "proxy",
            "mapped mapped-name nat64-name translated trailing-dot user-part user-part-behind null-byte percent",
        )
        + _all(
            "proxy", "suffix glued bare-wildcard other-server hub itself rebinding absolute host-header second-request"
        )
        + _all("proxy", "pipelined two-hosts body-as-request"),
        [HOSTS],
    ),
    Kind("sockets that the rule does not list", ["unix-other-listed", "unix-race"], [SOCKETS]),
    PASSING,
)
SHRINKS = {
    "unix-abstract", "unix-pair-abstract", "signal", "signal-hub", "signal-thread", "signal-queued", "signal-pidfd",
    "signal-group", "signal-by-owner",
}  # fmt: skip
"""What only Landlock's ABI 6 stops: below it these may get through, and `mcp-hub list` says so."""
WORKING = {
    ON: ("own-home", "own-temporary", "own-program", "own-lock", "any-host"),
    NONE: ("own-home", "own-temporary", "own-program"),
    HOSTS: ("own-home", "allowed-host"), SOCKETS: ("own-home", "listed-socket"),
}  # fmt: skip
"""What has to work inside, so that a refusal is the sandbox's, not a fault."""


def kinds(only: str) -> list[Kind]:
    """The kinds with this in their titles or their escapes; of the latter only those. `scenarios`: none."""
    chosen: list[Kind] = []
    if only == "scenarios":
        return chosen
    for kind in KINDS:
        names = kind.names if only in kind.title else [name for name in kind.names if only in name]
        if names:
            chosen.append(Kind(kind.title, names, kind.rules, kind.is_direct))
    return chosen
