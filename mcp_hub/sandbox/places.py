"""Paths that every server reads, that a rule must name, and that no rule opens."""

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

from mcp_hub.attach.system import user
from mcp_hub.files import entries_below

SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store", "/snap"),
    *("/home/linuxbrew/.linuxbrew", "/run/current-system", "/run/opengl-driver", "/var/lib/ca-certificates"),
    *("/var/cache/fontconfig", "/proc", "/sys/devices", "/sys/class", "/sys/bus", "/sys/fs/cgroup", "/sys/kernel/mm"),
)
"""Every server reads these. Landlock limits `/proc` to command lines."""
_SYSTEM_OF_MACOS: Final = (
    *("/usr", "/bin", "/sbin", "/System", "/Library", "/opt", "/private/etc", "/private/var/db/timezone"),
    *("/private/var/select", "/Applications/Xcode.app", "/nix/store", "/dev"),
)
_SETTINGS: Final = "/etc"
_MOST_LINKS: Final = 40
"""Links per path; more are a circle."""
_SECRET_SETTINGS: Final = frozenset(
    """
    shadow shadow- gshadow gshadow- sudoers sudoers.d ssh NetworkManager wireguard openvpn ipsec.d ipsec.secrets
    swanctl wpa_supplicant ppp letsencrypt kubernetes rancher docker containers krb5.keytab krb5kdc security.d
    cron.d crontab mysql postgresql redis openldap ldap.secret samba vpnc strongswan.d tinc zerotier-one cups
    """.split()
)
"""Keys and passwords in `/etc`, which uid 0 could read."""
_MOST_SETTINGS: Final = 20_000
"""Entries of `/etc` looked at for uid 0."""
_INNER_SECRETS: Final = {"/etc/ssl": ("private",), "/etc/pki": ("tls/private", "CA/private")}
"""Folders of `/etc` with secret parts."""
DEVICES: Final = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx"))
SHARED_MEMORY: Final = "/dev/shm"
_CHANGED_BY_THE_SYSTEM: Final = (
    *(*SYSTEM, *_SYSTEM_OF_MACOS, "/etc", "/boot", "/dev", "/run", "/sys", "/nix", "/gnu", "/Applications"),
    *("/var/lib", "/var/run", "/var/spool", "/var/cache", "/private/var/db", "/private/var/at"),
)
"""Folders that no argument opens for writing."""
_PROGRAMS: Final = """
    bin .local/bin .local/lib .local/share/uv .local/share/pipx .local/share/pnpm .local/share/mise .local/share/fnm
    .local/pipx .local/share/bash-completion .cache/uv .cache/pip .cache/pypoetry .npm .npm-global .yarn .pnpm-store
    .bun .deno .cargo .rustup go/bin .nvm .fnm .volta .asdf .pyenv .nodenv .rbenv .proto .rye .n n .conda .gem
    .config/pip .config/uv .config/npm .config/mise .config/git .gitconfig .config/nvim .vim .vimrc .emacs .emacs.d
    .config/nushell .tmux.conf .config/tmux .inputrc .bash_aliases .bash_logout .zlogin .zlogout .kshrc .pythonrc.py
    .xprofile .xinitrc .xsession .xsessionrc .pam_environment .pythonrc .condarc .direnvrc .config/direnv
    Library/Python Library/pnpm Library/Caches/pip Library/Caches/uv
    """.split()
"""In the home: programs, packages, settings that name programs. Only `write` makes them writable."""
PROJECTS: Final = ("package.json", "pyproject.toml", "setup.py", "node_modules", "deno.json", "Cargo.toml", "go.mod")
"""Names that mark a project's folder."""
_OF_CLIENTS: Final = ("Claude", "Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
"""Folders of clients among the settings of all programs."""
_SECRET: Final = """
    .ssh .aws .azure .gnupg .kube .docker .oci .aliyun .terraform.d .vault-token .config/gcloud .config/gh
    .config/glab-cli .config/hub .config/op .1password .config/1Password .config/doctl .config/rclone .config/sops
    .config/age .age .password-store .local/share/keyrings .local/share/kwalletd .local/share/gnome-keyring .pki .netrc
    .authinfo .authinfo.gpg .pgpass .my.cnf .npmrc .yarnrc .yarnrc.yml .pypirc .git-credentials .config/git/credentials
    .cargo/credentials .cargo/credentials.toml .gem/credentials .m2/settings.xml .gradle/gradle.properties
    .composer/auth.json .config/composer/auth.json .bash_history .zsh_history .local/share/fish/fish_history
    .python_history .node_repl_history .psql_history .mysql_history .sqlite_history .local/share/recently-used.xbel
    .mozilla .config/google-chrome .config/google-chrome-beta .config/chromium .config/BraveSoftware
    .config/microsoft-edge .config/opera .config/vivaldi .config/Signal .config/Slack .config/discord
    .local/share/TelegramDesktop .thunderbird .var/app .bitcoin .ethereum .electrum .config/solana .Xauthority
    .claude .claude.json .codex .gemini .cursor .config/github-copilot .vscode snap/code snap/code-insiders snap/codium
    .vscode-server .vscode-server-insiders .vscodium-server .cursor-server .windsurf-server
    .config/amp .config/devin .config/goose .config/mcp .config/opencode .config/zed
    .cache/lm-studio .ai/mcp .cline .codeium .continue .copilot .factory .junie .kimi .kiro .lmstudio .qwen .vibe .warp
    .config/mcp-hub .local/state/mcp-hub .config/systemd .config/autostart .local/share/applications
    .bashrc .bash_profile .bash_login .profile .zshrc .zshenv .zprofile .config/fish .config/environment.d
    Library/Keychains Library/Cookies Library/Safari Library/Mail Library/Messages Library/LaunchAgents
    """.split()
"""In the home: keys, passwords, browsers, chats, histories, login programs."""
_SECRET_NAMES: Final = frozenset((".env", ".netrc", ".git-credentials", "id_rsa", "id_ed25519", "id_ecdsa"))
"""Names of secret files anywhere."""
_CLOSED_SOCKETS: Final = frozenset(
    """
    docker.sock docker-cli.sock podman.sock containerd.sock crio.sock buildkitd.sock bus system_bus_socket snapd.socket
    snapd-snap.socket libvirt-sock libvirt-sock-ro private io.systemd.Manager io.systemd.Login lxd.socket unix.socket
    incus.socket kubelet.sock cri-dockerd.sock hub.sock http.sock virtqemud-sock machined
    """.split()
)
"""Sockets that start programs outside of the sandbox."""
_CLOSED_FORMS: Final = re.compile(
    r".*/(?:(?:docker|podman|containerd|buildkitd|crio|nerdctl|lxd|incus|kubelet|libvirt|virt\w+d)[\w.-]*sock(?:et)?(?:-\w+)?"
    r"|(?:tmux-\d+|emacs\d*|at-spi|daemon-socket)/.+|screens?/.+|nvim\.[\w.-]+|vscode-(?:ipc|git)-.+|supervisor\.sock)"
)
"""Patterns of such sockets: engines, tmux, screen, Emacs and so on."""
_OF_ALL: Final = frozenset(
    """
    /bin /boot /dev /etc /home /lib /lib64 /media /mnt /opt /proc /root /run /run/user /sbin /srv /sys /tmp /usr /var
    /var/cache /var/lib /var/log /var/run /var/tmp
    """.split()
)
"""Folders that all programs share."""
_LOOKED_AT: Final = 20_000
"""Entries searched for secret names."""
BROAD: Final = (".local", ".local/share", ".local/lib", ".config", ".cache", "Library", "Documents", "bin")
"""In the home: never an installation's folder."""


def system_paths() -> tuple[str, ...]:
    """Real paths that every server reads."""
    try:
        version = os.stat(_SETTINGS).st_mtime_ns
    except OSError:
        version = 0
    return _system_paths(version)


@lru_cache(maxsize=1)
def _system_paths(version: int) -> tuple[str, ...]:
    usual = _SYSTEM_OF_MACOS if sys.platform == "darwin" else (*SYSTEM, *_settings())
    return tuple(dict.fromkeys(os.path.realpath(path) for path in usual if os.path.exists(path)))


def _settings() -> Iterator[str]:
    is_root, budget = user() == 0, iter(range(_MOST_SETTINGS))
    for name in _listed(_SETTINGS):
        path = f"{_SETTINGS}/{name}"
        if name in _SECRET_SETTINGS:
            continue
        for part in _without(path, _INNER_SECRETS[path]) if path in _INNER_SECRETS else (path,):
            yield from _public(part, budget)[1] if is_root else (part,)
    yield from ("/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d")


def _public(path: str, budget: Iterator[int]) -> tuple[bool, list[str]]:
    """Whether all users may read all of it, and which parts, within `budget` entries."""
    if next(budget, None) is None or not _is_for_all(path):
        return False, []
    if os.path.islink(path) or not os.path.isdir(path):
        return True, [path]
    children = [child for name in _listed(path) if not os.path.islink(child := f"{path}/{name}")]
    parts = [_public(child, budget) for child in children]
    if all(is_whole for is_whole, _ in parts):
        return True, [path]
    return False, [public for _, publics in parts for public in publics]


def _is_for_all(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & 0o004)
    except OSError:
        return False


def _without(folder: str, parts: Iterable[str]) -> Iterator[str]:
    for child in _listed(folder):
        path = f"{folder}/{child}"
        inner = [part.removeprefix(f"{child}/") for part in parts if part.startswith(f"{child}/")]
        if child in parts:
            continue
        if inner:
            yield from _without(path, inner)
        else:
            yield path


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def leads_through(path: str, folders: Collection[str]) -> bool:
    """Whether an absolute path, or a link on it, is in one of these folders."""
    for _ in range(_MOST_LINKS):
        if any(is_inside(path, folder) for folder in folders):
            return True
        following = _behind_first_link(path)
        if following is None:
            return False
        path = following
    return True


def _behind_first_link(path: str) -> str | None:
    prefix, parts = "", path.split("/")[1:]
    for number, part in enumerate(parts):
        prefix = f"{prefix}/{part}"
        if os.path.islink(prefix):
            with suppress(OSError):
                target = os.path.join(os.path.dirname(prefix), os.readlink(prefix), *parts[number + 1 :])
                return os.path.normpath(target)
    return None


def secret_of(path: str, home: str) -> str | None:
    """The secret place that a path is, is in, or contains, or None. Ignores case."""
    path = usual_path(path, home)
    places = _secret_places(home)
    for ancestor in ancestors(path):
        if (secret := places.get(ancestor.lower())) is not None:
            return secret
    below = path.lower().rstrip("/") + "/"
    for lower, secret in places.items():
        if lower.startswith(below) and os.path.lexists(secret):
            return secret
    return path if os.path.basename(path).lower() in _SECRET_NAMES else None


def secret_file_in(folder: str, limit: int) -> str | None:
    """A file with a secret's name among the first `limit` entries."""
    for number, entry in enumerate(entries_below(folder)):
        if entry is None or number >= limit:
            break
        if entry.name.lower() in _SECRET_NAMES and not entry.is_dir(follow_symlinks=False):
            return entry.path
    return None


@lru_cache(maxsize=8)
def _secret_places(home: str) -> Mapping[str, str]:
    inner = (f"{folder}/{part}" for folder, parts in _INNER_SECRETS.items() for part in parts)
    system = (f"{_SETTINGS}/{name}" for name in _SECRET_SETTINGS)
    clients = (f"{folder}/{name}" for folder in (".config", "Library/Application Support") for name in _OF_CLIENTS)
    places = (*(os.path.join(home, name) for name in (*_SECRET, *clients)), *system, *inner)
    return {path.lower(): path for path in places}


def usual_path(path: str, home: str) -> str:
    """The path through the home folder or one above, if another mount point leads there."""
    usual = {state: folder for folder in ancestors(home) if (state := _identity(folder)) is not None}
    for ancestor in ancestors(path):
        if (state := _identity(ancestor)) is not None and (folder := usual.get(state)) is not None:
            return folder.rstrip("/") + path[len(ancestor.rstrip("/")) :] or "/"
    return path


def _identity(path: str) -> tuple[int, int] | None:
    try:
        state = os.stat(path)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def programs_at(path: str, home: str, folders: Iterable[str]) -> str | None:
    """The folder of programs that a path is, is in, or contains.

    `folders` are more, which a project may contain.
    """
    system = (changed for changed in _CHANGED_BY_THE_SYSTEM if not (is_inside(home, changed) and is_inside(path, home)))
    usual = (*system, *(os.path.join(home, name) for name in _PROGRAMS))
    for changed in usual:
        if is_inside(path, changed) or (is_inside(changed, path) and os.path.lexists(changed)):
            return changed
    for folder in folders:
        if is_inside(path, folder) or (is_inside(folder, path) and not _is_of_project(folder, path)):
            return folder
    return None


def _is_of_project(path: str, outer: str) -> bool:
    between = (ancestor for ancestor in ancestors(path) if is_inside(ancestor, outer))
    marks = (*PROJECTS, ".git", "pyvenv.cfg")
    return any(os.path.lexists(os.path.join(ancestor, name)) for ancestor in between for name in marks)


def ancestors(path: str) -> Iterator[str]:
    """An absolute path and its parents, root last."""
    while True:
        yield path
        parent = os.path.dirname(path)
        if parent == path:
            return
        path = parent


def why_too_broad(path: str, home: str, hub: Iterable[str]) -> str | None:
    """The reason why no rule may open a path (home or hub folders), or None."""
    path = usual_path(path, home)
    if path == "/":
        return "it is the whole system"
    if is_inside(home, path):
        return "it is or contains the home folder"
    for folder in hub:
        if is_inside(folder, path) or is_inside(path, folder):
            return f"the hub keeps its own files in {folder}"
    return None


def why_shared(path: str, home: str) -> str | None:
    """The reason not to propose a path of many programs, or None."""
    path = usual_path(path, home)
    if path in _OF_ALL:
        return "all programs share this folder"
    if path in {os.path.join(home, name) for name in BROAD}:
        return "many programs keep their files in this folder"
    return None


def secret_at(path: str, home: str) -> str | None:
    """`secret_of`, or a file with a secret's name below the folder. Takes a moment."""
    return secret_of(path, home) or secret_file_in(path, _LOOKED_AT)


def why_closed(socket: str) -> str | None:
    """The reason why a rule may not list a Unix socket, or None."""
    paths = (socket, os.path.realpath(socket))
    names = {os.path.basename(path) for path in paths}
    if names & _CLOSED_SOCKETS or is_inside(paths[1], "/run/systemd") or any(map(_CLOSED_FORMS.fullmatch, paths)):
        return "programs can be started outside of the sandbox through it"
    return None
