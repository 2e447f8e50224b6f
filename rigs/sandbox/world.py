"""The world around a hostile server: the files of a user, other programs, addresses and names, all with canaries."""

import json
import os
import pty
import secrets
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import mcp_hub
from rigs.sandbox.spaces import EVIL, EVIL6, GOOD, METADATA, PRIVATE, become, connect, give

HOSTILE = Path(__file__).with_name("hostile")
_ANSWERING = {"port": "7777", "http": "80", "https": "443", "ssh": "22", "dns": "53", "proxy-port": "9"}
"""Ports at which everything answers; the last is the one that the hub names to servers as its proxy."""
_SECRETS = {
    "ssh-key": ".ssh/id_ed25519", "aws": ".aws/credentials", "netrc": ".netrc", "gh": ".config/gh/hosts.yml",
    "cookies": ".mozilla/firefox/abc.default/cookies.sqlite", "history": ".bash_history", "npmrc": ".npmrc",
    "project": "projects/other/secret.txt", "state": "state/secrets.json",
}  # fmt: skip
"""Files that only a leak shows."""
_STARTED_LATER = {
    "bashrc": ".bashrc", "profile": ".profile", "bash-profile": ".bash_profile", "zshrc": ".zshrc",
    "pythonrc": ".pythonrc.py", "authorized-keys": ".ssh/authorized_keys", "ssh-config": ".ssh/config",
    "gitconfig": ".gitconfig", "git-hook": "projects/other/.git/hooks/post-commit",
    "npx-cache": ".npm/_npx/0a1b2c/node_modules/.bin/tool", "npm-cache": ".npm/_cacache/index-v5/00/11/22",
    "uv-cache": ".cache/uv/archive-v0/x/tool.py", "uv-tool": ".local/share/uv/tools/tool/bin/tool",
    "local-bin": ".local/bin/git", "user-customize": ".local/lib/python3/site-packages/usercustomize.py",
    "node-modules": "node_modules/evil/index.js", "systemd": ".config/systemd/user/evil.service",
    "autostart": ".config/autostart/evil.desktop", "socket-folder": "run/evil.sock",
    "vscode": "projects/other/.vscode/tasks.json", "scratch": "projects/other/notes.txt",
}  # fmt: skip
"""Files that something runs or reads later, and one that is only there."""
_SYSTEM = {
    "crontab": "/var/spool/cron/crontabs/root", "cron-d": "/etc/cron.d/evil", "preload": "/etc/ld.so.preload",
    "passwd": "/etc/passwd", "shadow": "/etc/shadow", "profile-d": "/etc/profile.d/evil.sh",
}  # fmt: skip
_CANARIES = ("canary", "good-canary", "private-canary", "evil-canary", "docker-canary")
_SOCKETS = {
    "docker": "run/docker.sock", "agent": "run/agent.sock", "bus": "run/bus", "display": "run/X0",
    "hub-socket": "state/hub.sock", "datagrams": "run/log",
}  # fmt: skip


def lay_out(root: Path, user: str = "") -> dict[str, str]:
    """Makes the files under this folder; the world of an escape, without what only running programs know.

    `user` is the number of the user whose they are to be, and who runs all programs; our own without.
    """
    home = root / "home"
    world = {name: secrets.token_hex(12) for name in _CANARIES}
    for folder in ("run", "state", "hostile", "data", *(str(Path(one).parent) for one in _STARTED_LATER.values())):
        (home / folder).mkdir(parents=True, exist_ok=True)
    for name, path in _SECRETS.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(f"{name}: {world['canary']}\n")
        world[name] = str(home / path)
    for name, path in _STARTED_LATER.items():
        if name not in ("systemd", "autostart", "socket-folder", "vscode", "local-bin", "node-modules"):
            (home / path).write_text("# a file of the user\n")
        world[name] = str(home / path)
    (home / "link").symlink_to("projects")
    world["link"] = str(home / "link")
    world |= {**_SYSTEM, **{name: str(home / path) for name, path in _SOCKETS.items()}, **_ANSWERING}
    world |= _devices()
    shm = Path("/dev/shm/mcp-hub-rig")
    shm.write_text(world["canary"])
    return {
        **world, "user": user, "home": str(home), "folder": str(home / "projects" / "other"),
        "config": str(home / "servers.yaml"),
        "signals": str(root / "signals"), "shm": str(shm), "abstract": f"rig-{world['evil-canary'][:8]}",
        "abstract-datagrams": f"rig-d-{world['evil-canary'][:8]}", "fifo": _fifo(home), "set-uid": _set_uid(home, 1),
        "code": str(home / "hostile" / "server.mjs"), "hub-package": str(Path(mcp_hub.__file__)), "good-address": GOOD,
        "evil-address": EVIL, "private-address": PRIVATE, "metadata-address": METADATA, "evil-address6": EVIL6,
        "mapped-address": f"::ffff:{EVIL}",
    }  # fmt: skip


def _devices() -> dict[str, str]:
    """A disk that may be opened: its path and its number."""
    for line in Path("/proc/partitions").read_text().splitlines()[2:] + ["7 0 1 loop0"]:
        major, minor, _, name = line.split()
        try:
            os.close(os.open(f"/dev/{name}", os.O_RDONLY))
        except OSError:
            continue
        return {"disk": f"/dev/{name}", "disk-number": f"{major}:{minor}"}
    return {"disk": "/dev/no-disk", "disk-number": "0:0"}


def _fifo(home: Path) -> str:
    path = home / "run" / "fifo"
    os.mkfifo(path, 0o600)
    return str(path)


def _set_uid(home: Path, owner: int) -> str:
    """A program that becomes this user, in a folder of the home."""
    path = home / "data" / "id"
    path.unlink(missing_ok=True)
    shutil.copy("/usr/bin/id", path)
    with suppress(OSError):  # a namespace with one user
        os.chown(path, owner, owner)
    path.chmod(0o4755)
    return str(path)


def programs(home: Path, languages: Sequence[str], user: str = "") -> dict[str, list[str]]:
    """The command of the hostile server in each of these languages that this machine has, its files under `home`."""
    folder = home / "hostile"
    archive = folder / "hostile.pyz"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in HOSTILE.glob("*.py"):
            packed.write(path, f"rigs/sandbox/hostile/{path.name}")
        for package in ("rigs", "rigs/sandbox", "rigs/sandbox/hostile"):
            packed.writestr(f"{package}/__init__.py", "")
        packed.writestr("__main__.py", "from rigs.sandbox.hostile.server import main\n\nmain()\n")
    python = "/usr/bin/python3" if user else sys.executable  # ours may be where only root can look
    found = {"Python": [python, "-S", str(archive)]}
    shutil.copy(HOSTILE / "server.mjs", folder)
    if node := shutil.which("node"):
        found["Node"] = [node, str(folder / "server.mjs")]
    if "C" in languages and (compiler := shutil.which("cc") or shutil.which("gcc")):
        target = folder / "escapes"
        line = [compiler, "-static", "-no-pie", "-O1", "-o", str(target), str(HOSTILE / "server.c")]
        if subprocess.run(line, capture_output=True, check=False).returncode == 0:
            found["C"] = [str(target)]
    return {language: found[language] for language in languages if language in found}


@contextmanager
def running(root: Path, world: dict[str, str]) -> Iterator[dict[str, str]]:
    """The world with its programs: they end with this. Raises: `RuntimeError` for one that does not start."""
    with ExitStack() as stack:
        master, slave = pty.openpty()
        stack.callback(os.close, master)
        stack.callback(os.close, slave)
        world = {**world, "terminal": os.ttyname(slave)}
        for path in (root, Path(world["terminal"]), Path(world["shm"])):
            give(path, world["user"])
        if world["user"]:
            _set_uid(Path(world["home"]), 0)
        for name in ("victim", "services", "far"):
            spec = root / f"{name}.json"
            spec.write_text(json.dumps(world))
            process = stack.enter_context(_program(name, spec, world))
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the neighbour {name} does not start")
            world |= json.loads(line)
        connect(world["process"])
        yield world


@contextmanager
def _program(name: str, spec: Path, world: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    space = ["unshare", "--net"] if name == "far" else become(world["user"])
    command = [*space, sys.executable, "-S", str(Path(__file__).with_name("neighbours.py")), name, str(spec)]
    env = {**os.environ, "NEIGHBOUR_SECRET": world["canary"]}
    piped = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=piped, stdout=piped, env=env, cwd=world["folder"], start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()
