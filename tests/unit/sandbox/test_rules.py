"""The paths that a rule opens for a command, and the rules that are refused."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import mcp_hub
from mcp_hub.onboarding.clients.table import CLIENTS
from mcp_hub.sandbox import places
from mcp_hub.sandbox import rules as module
from mcp_hub.sandbox.confinement import READ, SHARED, WRITE, WRITE_FILE, Confinement
from mcp_hub.sandbox.home import PrivateHome
from mcp_hub.sandbox.places import programs_at
from mcp_hub.sandbox.rules import ResolvedRule, Rule, RuleError, Subject, Surroundings, resolve


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "support", lambda net, *, has_sockets: (7, "x86_64"))
    folder = tmp_path / "user"
    for name in ("data/inner", "work", ".ssh", ".config/app", "project", "state"):
        (folder / name).mkdir(parents=True)
    (folder / "project/servers.yaml").touch()
    return folder


def resolved(
    home: Path, rule: Rule | None = None, args: Sequence[str] = (), *, program: str = "/bin/sh", cwd: str = "/",
    env: dict[str, str] | None = None, is_spare: bool = False,
) -> ResolvedRule:  # fmt: skip
    around = Surroundings(str(home), (str(home / "state"),), str(home / "project/servers.yaml"))
    variables = {"PATH": "/usr/bin:/bin"} | (env or {})
    subject = Subject(program, args, variables, cwd, around, is_spare)
    return resolve(rule or Rule(), subject, PrivateHome(str(home / "state/private")))


def rights(confinement: Confinement, path: Path) -> str:
    """`r`, `w` or both, as the path can be used."""
    real = os.path.realpath(path)
    can_read, can_write = confinement.allows(real) is not None, confinement.allows(real, WRITE_FILE) is not None
    return "r" * can_read + "w" * can_write


@pytest.mark.parametrize("client", CLIENTS)
def test_files_of_every_client_are_secret(client: str) -> None:
    paths = [place.paths for place in CLIENTS[client].places]
    templates = [template for each in paths for template in (*each.linux, *each.macos)]
    usual = {template.replace("$XDG_CONFIG_HOME", "~/.config") for template in templates}
    for path in [template for template in usual if template.startswith("~/")]:
        assert places.secret_of(path.replace("~", "/home/me", 1).replace("*", "x"), "/home/me"), path


def test_the_usual_rule_opens_the_arguments_and_a_private_home(home: Path) -> None:
    (home / "work/server.py").touch()
    args = [str(home / "work/server.py"), "--db=" + str(home / "data"), "~/.config/app", (home / "gone").as_uri()]
    confinement = resolved(home, args=args).confinement
    expected = {
        "data/inner": "rw", "work/server.py": "r", ".config/app": "rw", "": "", "project": "", ".ssh": "",
        "state": "", "state/private/home/x": "rw", "state/private/tmp": "rw", "state/private/settings": "r",
    }  # fmt: skip
    assert {name: rights(confinement, home / name) for name in expected} == expected
    assert rights(confinement, Path("/usr/bin")) == "r"
    assert (confinement.allows("/etc/passwd"), confinement.allows("/etc/shadow")) != (None, None)
    assert confinement.allows("/etc/shadow") is None
    assert confinement.allows("/tmp") is None
    assert confinement.variables["HOME"] == str(home / "state/private/home")


def test_a_program_among_the_arguments_is_only_read(home: Path) -> None:
    (home / "work/tool").write_text("#!/bin/sh\n")
    (home / "work/binary").write_bytes(b"\x7fELF\x02")
    (home / "work/notes").write_text("text")
    args = [f"--python={home}/work/binary", str(home / "work/tool"), str(home / "work/notes")]
    confinement = resolved(home, args=args).confinement
    assert [rights(confinement, home / "work" / name) for name in ("binary", "tool", "notes")] == ["r", "r", "rw"]


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("/usr/share", "r"), ("/etc/hostname", "r"), ("/etc", ""), ("/var", "r"), ("/dev/null", "rw"),
        ("/dev", "r"), ("/etc/ssh", ""), ("~/.local/bin/tool", "r"), ("~/.local/bin", "r"), ("~/.local", "r"),
        ("~/.local/share/app", "rw"), ("~/.npm/_npx", "r"), ("~/.gitconfig", "r"), ("~/link-to-bin", "r"),
        ("~/tools", "r"), ("~/tools/data", "rw"), ("~/conda/pkgs", "r"), ("~/env/data", "r"), ("~/work/data", "rw"),
        ("~/repository", "rw"), ("~/repository/.venv/lib", "r"), ("~/package/data.db", "rw"),
        (os.path.dirname(mcp_hub.__file__), "r"), (sys.prefix, "r"),
        *([] if sys.prefix.startswith("/opt/") else [("/opt", "r")]),  # in a container the hub itself is there
    ],
)  # fmt: skip
def test_an_argument_with_programs_is_only_read_unless_write_names_it(home: Path, argument: str, expected: str) -> None:
    folders = (
        ".local/bin .local/share/app .npm/_npx tools/inner tools/data conda/bin conda/pkgs env/bin env/data work/data "
        "repository/.git repository/.venv/bin repository/.venv/lib package"
    )
    for name in folders.split():
        (home / name).mkdir(parents=True, exist_ok=True)
    for name in (".local/bin/tool", ".gitconfig", "conda/bin/python3", "env/pyvenv.cfg", "repository/.venv/pyvenv.cfg"):
        (home / name).touch()
    (home / "package/data.db").touch()
    (home / "link-to-bin").symlink_to(home / ".local/bin")
    on_path = ("tools/inner", "conda/bin", "repository/.venv/bin")
    path = ":".join([*(str(home / name) for name in on_path), str(home / "package"), "/usr/bin"])
    program = str(home / "package/server") if "package" in argument else str(home / "env/bin/server")
    (home / program).touch()
    rule = resolved(home, args=[argument], program=program, env={"PATH": path})
    place = Path(str(home) + argument[1:] if argument.startswith("~") else argument)
    assert rights(rule.confinement, place) == expected
    assert [remark for remark in rule.remarks if "To open it, set" in remark] or "w" in expected or os.geteuid() != 0
    assert any("programs of other servers" in remark for remark in rule.remarks) == (argument == "~/repository")
    if argument.startswith("~") or argument in ("/opt", "/var"):
        is_link = argument == "~/link-to-bin"
        by_name = resolved(home, Rule(write=(argument,)), program=program, env={"PATH": path})
        assert ("w" in rights(by_name.confinement, place)) is not is_link
        assert any("by a link, and" in remark for remark in by_name.remarks) is is_link


def test_a_home_folder_among_those_of_the_system_has_data(home: Path) -> None:
    assert programs_at("/var/lib/hub/data", "/var/lib/hub", []) is None
    assert programs_at("/var/lib/hub/bin", "/var/lib/hub", []) == "/var/lib/hub/bin"
    assert programs_at("/var/lib/dpkg", "/var/lib/hub", []) == "/var/lib"


def test_root_reads_of_the_settings_what_every_user_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_SETTINGS", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    modes = {"app/settings": 0o644, "app/keys/key": 0o600, "app/keys/list": 0o644, "web/page": 0o644, "own/x": 0o644}
    for name, mode in modes.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    (tmp_path / "own").chmod(0o700)
    (tmp_path / "web/link").symlink_to(tmp_path / "app/keys/key")
    public = {path.removeprefix(f"{tmp_path}/") for path in places.system_paths() if path.startswith(str(tmp_path))}
    assert public == {"app/settings", "app/keys/list", "web"}
    monkeypatch.setattr(places, "_MOST_SETTINGS", 2)
    os.utime(tmp_path, (1, 1))
    assert not [path for path in places.system_paths() if "keys" in path or path.endswith("/web")]


def test_shared_memory_takes_new_files(home: Path) -> None:
    (shared,) = [grant for grant in resolved(home).confinement.grants if grant.path == "/dev/shm"]
    assert shared.access == SHARED


def test_relative_arguments_and_the_working_directory(home: Path) -> None:
    confinement = resolved(home, args=["./inner"], cwd=str(home / "data")).confinement
    assert [rights(confinement, home / name) for name in ("data", "data/inner")] == ["r", "rw"]
    assert rights(resolved(home, cwd=str(home)).confinement, home / "data") == ""
    spare = resolved(home, cwd=str(home / "work"), is_spare=True).confinement
    assert rights(spare, home / "work") == "rw"


def test_own_parts_of_a_rule_replace_the_usual_ones(home: Path) -> None:
    rule = Rule(read=(str(home / ".ssh"), "~/data"), write=("~/work",))
    confinement = resolved(home, rule, [str(home / ".config/app")], cwd=str(home / "project")).confinement
    expected = {".ssh": "r", "data": "r", "work": "rw", ".config/app": "", "project": ""}
    assert {name: rights(confinement, home / name) for name in expected} == expected
    only_write = resolved(home, Rule(write=("~/work",)), [str(home / "data")], cwd=str(home / "project")).confinement
    expected = {"work": "rw", "data": "r", "project": "r"}
    assert {name: rights(only_write, home / name) for name in expected} == expected


@pytest.mark.parametrize(
    ("rule", "args", "key"),
    [
        (Rule(read=("~/..",)), [], "read"),
        (Rule(write=("~/state/private/home",)), [], "write"),
        (Rule(read=("~/link",)), [], "read"),
        (Rule(), ["/"], "args"),
        (Rule(), ["~/"], "args"),
        (Rule(), ["--root=~/link"], "args"),
        (Rule(), ["~/state"], "args"),
        (Rule(), ["~/project"], "args"),
        (Rule(write=("~/project",)), [], "write"),
        (Rule(write=(str(Path(mcp_hub.__file__).parent),)), [], "write"),
        (Rule(write=(os.path.dirname(os.__file__),)), [], "write"),
        (Rule(write=(f"{os.path.dirname(os.__file__)}/json",)), [], "write"),
        (Rule(write=(os.path.dirname(pytest.__file__),)), [], "write"),  # beside the packages of the hub
        (Rule(sockets=("/run/docker.sock",)), [], "sockets"),
        (Rule(sockets=("~/.docker/desktop/docker-raw.sock",)), [], "sockets"),
        (Rule(sockets=("/tmp/tmux-1000/default",)), [], "sockets"),
        (Rule(sockets=("/run/screen/S-ann/1.pts",)), [], "sockets"),
        (Rule(sockets=("/run/user/1000/emacs/server",)), [], "sockets"),
        (Rule(sockets=("/nix/var/nix/daemon-socket/socket",)), [], "sockets"),
        (Rule(sockets=("/run/user/1000/bus",)), [], "sockets"),
        (Rule(sockets=("~/agent",)), [], "sockets"),  # a link to one
        (Rule(write=("~/work",), sockets=("~/work/agent",)), [], "sockets"),
    ],
)
def test_a_rule_that_opens_too_much_is_refused(home: Path, rule: Rule, args: list[str], key: str) -> None:
    (home / "link").symlink_to(home)
    (home / "agent").symlink_to("/run/docker.sock")
    with pytest.raises(RuleError) as refused:
        resolved(home, rule, args)
    assert refused.value.key == key


def test_remarks_name_what_stays_closed(home: Path) -> None:
    (home / "key").symlink_to(home / ".ssh")
    rule = resolved(home, args=[str(home / ".ssh"), str(home / "key"), str(home / "work")])
    assert rights(rule.confinement, home / ".ssh") == ""
    assert len(rule.remarks) == 2
    (home / ".local/bin").mkdir(parents=True)
    args = [str(home / ".local/bin"), str(home / "work"), str(home / ".ssh"), str(home / "data/${X}/.env")]
    (home / "data/${X}").mkdir()
    (home / "data/${X}/.env").touch()
    remarks = "\n".join(resolved(home, args=args, cwd=str(home / "project")).remarks)
    for line in (f'write: ["{home}/work", "{home}/.local/bin"].', f'read: ["{home}/project", "{home}/.ssh"].'):
        assert f"To open it, set {line}" in remarks  # with what the key opens now, which a list would close
    assert "cannot stand in a rule" in remarks and "add it to" not in remarks
    assert "does not exist" in resolved(home, Rule(read=("~/gone",))).remarks[0]
    assert "does not exist" in resolved(home, Rule(sockets=("~/gone",))).remarks[0]


def test_a_link_in_a_writable_folder_opens_nothing(home: Path) -> None:
    (home / "data/swapped").symlink_to(home / "work")
    (home / "way").symlink_to(home / "data/swapped")  # a link of the user, over one of the server
    (home / "to-data").symlink_to(home / "data")
    swapped, way = str(home / "data/swapped"), str(home / "way")
    cases: list[tuple[Rule, list[str], str]] = [
        (Rule(), [str(home / "data"), swapped], "/"),
        (Rule(), [swapped, str(home / "data")], "/"),
        (Rule(write=("~/data", "~/data/swapped")), [], "/"),
        (Rule(write=("~/data",), read=("~/data/swapped",)), [], "/"),
        (Rule(write=("~/data",)), [], swapped),
        (Rule(write=("~/data",)), [swapped], "/"),
        (Rule(), [way, str(home / "data")], "/"),
        (Rule(), [way, str(home / "to-data")], "/"),
        (Rule(write=("~/way", "~/to-data")), [], "/"),
        (Rule(write=("~/data",), read=("~/way",)), [], "/"),
        (Rule(write=("~/data",)), [], way),
    ]
    for rule, args, cwd in cases:
        env = {"SSL_CERT_FILE": way, "PATH": f"/usr/bin:{swapped}:{way}", "VOLTA_HOME": way}
        confinement = resolved(home, rule, args, cwd=cwd, env=env).confinement
        assert rights(confinement, home / "work") == "", (rule, args, cwd)
    (home / "work/python").touch(0o700)
    (home / "data/tool").symlink_to(home / "work/python")
    (home / "data/run").write_text(f"#!{home}/work/python\n")
    (home / "data/run").chmod(0o700)
    (home / "script").write_text(f"#!{home}/data/run\n")
    (home / "script").chmod(0o700)
    for name in ("data/run", "script"):
        with pytest.raises(RuleError, match=rf"hides .*/work/python, the interpreter of .*/{name}"):
            resolved(home, Rule(write=("~/data",)), program=str(home / name))
    (home / "link.py").symlink_to(home / "data/run.py")
    (home / "data/run.py").symlink_to(home / "work/run.py")
    (home / "work/run.py").touch()
    rule, args = Rule(write=("~/data",)), [str(home / "link.py")]
    assert rights(resolved(home, rule, args).confinement, home / "work") == ""
    line = rf'hides the program .*/data/tool\. If it may, set read: \["{home}/work"\] in its'  # not its link
    with pytest.raises(RuleError, match=line):
        resolved(home, rule, program=str(home / "data/tool"))
    with pytest.raises(RuleError, match="may write there"):
        resolved(home, Rule(write=("~/data",), sockets=("~/way/agent",)))


def test_a_link_of_a_rule_opens_no_secret_place_that_it_does_not_name(home: Path) -> None:
    for name in (".config/gcloud", ".local/bin/x", "dotfiles/ssh"):
        (home / name).mkdir(parents=True)
    links = {"keys": ".ssh/a\nb", "tools": ".local/bin", "settings": ".config", "notes": "work", "deep": ".local"}
    for link, target in links.items():
        (home / link).symlink_to(home / target)  # such as one that another server has put there
    (home / ".aws").symlink_to(home / "dotfiles/ssh")
    rows = {
        ("read", "~/keys"): "", ("write", "~/keys"): "", ("read", "~/settings"): "", ("read", "~/settings/gcloud"): "",
        ("write", "~/tools"): "", ("write", "~/deep/bin/x"): "", ("write", "~/notes"): "rw", ("read", "~/notes"): "r",
        ("read", "~/.aws"): "r", ("read", "~/.ssh"): "r", ("write", "~/.local/bin"): "rw", ("read", "~/tools"): "r",
    }  # fmt: skip
    for (key, text), expected in rows.items():
        chosen = resolved(home, Rule(read=(text,)) if key == "read" else Rule(write=(text,)))
        assert rights(chosen.confinement, home / text[2:]) == expected, (key, text)
        assert all(remark.isprintable() for remark in chosen.remarks)
        assert any(text in remark and "by a link" in remark for remark in chosen.remarks) is (expected == "")


def test_a_secret_place_is_closed_by_each_of_its_names(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".SSH").mkdir(exist_ok=True)
    (home / "work/.ENV").touch()
    rule = resolved(home, args=["~/.SSH", "~/work/.ENV"])
    assert rights(rule.confinement, home / ".SSH") == rights(rule.confinement, home / "work/.ENV") == ""
    mounted = home.parent / "mounted"  # the home folder at another mount point
    (mounted / ".ssh").mkdir(parents=True)
    (mounted / "data").mkdir()
    identity = places._identity

    def mounted_identity(path: str) -> tuple[int, int] | None:
        return identity(str(home) if path == str(mounted) else path)

    monkeypatch.setattr(places, "_identity", mounted_identity)
    rule = resolved(home, args=[f"{mounted}/.ssh", f"{mounted}/data"])
    assert (rights(rule.confinement, mounted / ".ssh"), rights(rule.confinement, mounted / "data")) == ("", "rw")
    for written in (str(mounted), f"{mounted}/state"):
        with pytest.raises(RuleError, match="home folder|own files"):
            resolved(home, Rule(read=(written,)))


def test_an_interpreter_that_the_rule_hides_is_named_unless_another_one_is_found(home: Path) -> None:
    (home / ".ssh/tool").touch(0o700)
    for name, first in {
        "direct": f"{home}/.ssh/tool",
        "looked-up": "/usr/bin/env -S tool",
        "outer": f"{home}/direct",
    }.items():
        (home / name).write_text(f"#!{first}\n")
        (home / name).chmod(0o700)
        with pytest.raises(
            RuleError, match=r"hides .*/\.ssh/tool, the interpreter of .*\.ssh is secret: ask why"
        ) as caught:
            resolved(home, program=str(home / name), env={"PATH": f"{home}/.ssh:/usr/bin"})
        assert caught.value.key == "command"
        resolved(
            home, Rule(read=("~/.ssh", "~/direct")), program=str(home / name), env={"PATH": f"{home}/.ssh:/usr/bin"}
        )
    (home / "project/tool").touch(0o700)
    resolved(home, program=str(home / "looked-up"), env={"PATH": f"{home}/.ssh:{home}/project"})


def test_interpreters_in_the_home_folder_are_found(home: Path) -> None:
    base, venv = home / ".tools/python-3", home / "work/.venv"
    for folder in (base / "bin", base / "lib", venv / "bin", venv / "lib/python3/site-packages", home / "editable"):
        folder.mkdir(parents=True)
    (base / "bin/python3").touch(0o700)
    (venv / "pyvenv.cfg").write_text(f"home = {base}/bin\n")
    (venv / "bin/python").symlink_to(base / "bin/python3")
    (venv / "bin/server").write_text(f"#!{venv}/bin/python\n")
    (venv / "bin/server").chmod(0o700)
    (venv / "lib/python3/site-packages/own.pth").write_text(f"{home}/editable\n{home}\n")
    (home / ".local/bin").mkdir(parents=True)
    (home / ".local/bin/server").symlink_to(venv / "bin/server")
    (home / ".local/share").mkdir()
    confinement = resolved(home, program=str(home / ".local/bin/server")).confinement
    expected = {".tools/python-3/lib": "r", "work/.venv/lib": "r", "editable": "r", "work": "", ".local/share": ""}
    assert {name: rights(confinement, home / name) for name in expected} == expected
    assert rights(confinement, home) == ""


def test_a_script_of_node_reads_its_package(home: Path) -> None:
    package = home / "work/server"
    (package / "build").mkdir(parents=True)
    (package / "node_modules").mkdir()
    (package / "package.json").touch()
    (package / "build/index.js").touch()
    confinement = resolved(home, args=[str(package / "build/index.js")]).confinement
    assert [rights(confinement, path) for path in (package / "node_modules", home / "work")] == ["r", ""]


def test_a_version_manager_keeps_its_folder(home: Path) -> None:
    (home / ".volta/bin").mkdir(parents=True)
    (home / ".volta/bin/npx").touch(0o700)
    confinement = resolved(home, program=str(home / ".volta/bin/npx")).confinement
    assert confinement.variables["VOLTA_HOME"] == str(home / ".volta")
    assert rights(confinement, home / ".volta/tools") == "r"


def test_hosts_come_with_the_variables_of_the_proxy(home: Path) -> None:
    confinement = resolved(home, Rule(net="hosts")).confinement
    env = confinement.environment({"NO_PROXY": "*", "HTTPS_PROXY": "http://other:1", "A": "b"})
    assert env["HTTPS_PROXY"] == env["http_proxy"] == "http://127.0.0.1:9"
    assert (env["A"], env["NODE_USE_ENV_PROXY"], "NO_PROXY" in env) == ("b", "1", False)
    assert "HTTPS_PROXY" not in resolved(home).confinement.variables


def test_a_grant_inside_of_another_one_is_left_out(home: Path) -> None:
    grants = resolved(home, args=[str(home / "data")], cwd=str(home / "data/inner")).confinement.grants
    paths = [grant.path for grant in grants]
    assert str(home / "data/inner") not in paths
    assert len(paths) == len(set(paths))
    assert next(grant.access for grant in grants if grant.path == str(home / "data")) == READ | WRITE
