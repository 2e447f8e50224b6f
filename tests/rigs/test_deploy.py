"""The files for deploying replicas agree with each other and with the hub, and what the server allows is enough."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from mcp_hub.clock import SystemClock
from mcp_hub.config.load.load import parse
from mcp_hub.config.schema.hub import HttpSettings
from mcp_hub.stores.base import StoreLimits
from mcp_hub.stores.replicated import redis_store
from tests.redis_server import NO_SERVER, RedisServer, binary
from tests.unit.stores.event_stores import append, create, new_row, opened, replayed

FOLDER: Final = Path(__file__).parents[2] / "examples" / "deploy"
ENV: Final = {"HUB_TOKEN": "t" * 32, "STORE_PASSWORD": "p" * 16, "STORE_HOST": "valkey"}
PORT: Final = HttpSettings.model_fields["port"].default


def text(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def objects() -> dict[tuple[str, str], Any]:
    found = [each for each in yaml.safe_load_all(text("kubernetes.yaml")) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def test_the_configuration_is_valid_and_names_the_server() -> None:
    loaded = parse(text("servers.yaml"), "servers.yaml", ENV, FOLDER)
    store = loaded.settings.hub.store
    assert store.type == "redis" and store.url is not None
    assert store.url.get_secret_value() == f"redis://mcp-hub:{ENV['STORE_PASSWORD']}@valkey:6379"


def test_compose_has_two_replicas_behind_nginx_that_does_not_hold_back_streams() -> None:
    services = yaml.safe_load(text("compose.yaml"))["services"]
    assert services["hub-1"] == services["hub-2"]
    nginx = text("nginx.conf")
    assert re.findall(r"^ +server (\S+) ", nginx, re.MULTILINE) == [f"hub-1:{PORT}", f"hub-2:{PORT}"]
    for line in ("proxy_buffering off;", "proxy_request_buffering off;", "proxy_http_version 1.1;", "gzip off;"):
        assert line in nginx
    assert not re.search("^ *(ip_hash|hash|sticky|proxy_ignore_client_abort on|.*non_idempotent)", nginx, re.MULTILINE)
    assert services["balancer"]["ports"] == [f"127.0.0.1:{PORT}:8080"] and "listen 8080;" in nginx


def test_kubernetes_probes_replicas_and_keeps_one_of_them_running() -> None:
    found = objects()
    deployment = found["Deployment", "mcp-hub"]["spec"]
    (hub,) = deployment["template"]["spec"]["containers"]
    assert hub["ports"] == [{"name": "http", "containerPort": PORT}]
    paths = {probe: hub[f"{probe}Probe"]["httpGet"]["path"] for probe in ("liveness", "readiness", "startup")}
    assert paths == {"liveness": "/livez", "readiness": "/readyz", "startup": "/livez"}
    labels = deployment["selector"]["matchLabels"]
    for kind in ("PodDisruptionBudget", "Service"):
        selector = found[kind, "mcp-hub"]["spec"]["selector"]
        assert selector.get("matchLabels", selector) == labels
    assert found["Service", "mcp-hub"]["spec"]["sessionAffinity"] == "None"
    assert found["PodDisruptionBudget", "mcp-hub"]["spec"]["minAvailable"] == 1 < deployment["replicas"]


def server_lines(source: str) -> list[str]:
    """The configuration of the server in a file, without the password's name."""
    body = source[source.index("dir /data") :]
    return [line.strip().replace("${STORE_PASSWORD}", "$STORE_PASSWORD") for line in body.splitlines()[:8]]


@pytest.mark.anyio
@pytest.mark.skipif(binary() is None, reason=NO_SERVER)
async def test_both_servers_are_configured_alike_and_their_user_may_do_what_the_store_does(tmp_path: Path) -> None:
    lines = server_lines(text("compose.yaml"))
    assert lines == server_lines(text("kubernetes.yaml"))
    assert "maxmemory-policy noeviction" in lines and "appendonly yes" in lines and "user default off" in lines
    (user,) = [line.removeprefix("user ").split() for line in lines if line.startswith("user mcp-hub ")]
    name, *rules = [word.replace("$STORE_PASSWORD", ENV["STORE_PASSWORD"]) for word in user]
    with RedisServer(tmp_path) as server:
        with server.client as client:
            client.acl_setuser(name, enabled=True, reset=True)
            client.execute_command("ACL", "SETUSER", name, *rules)
        url = f"redis://{name}:{ENV['STORE_PASSWORD']}@127.0.0.1:{server.port}"
        async with opened(redis_store(url, "mcp-hub:", 5.0, "local", StoreLimits(), SystemClock())) as store:
            row = await create(store, new_row(store, key="k"), 2)
            await append(store, row, 3, status="completed")
            assert len(await replayed(store, row)) == 3 and store.log.is_durable
            assert await store.log.rows(row.principal, 10) and await store.leases.orphans() == []
            await store.sweep(1e12)
        with server.client as client:
            assert client.execute_command("ACL", "LOG") == []


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_takes_its_configuration(tmp_path: Path) -> None:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    here = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in kinds)
    local = text("nginx.conf").replace("hub-1:", "127.0.0.1:").replace("hub-2:", "127.0.0.2:")
    local = local.replace("http {", f"http {{ access_log off; {here}", 1)
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid;\n{local}")
    command = ["nginx", "-t", "-p", str(tmp_path), "-e", str(tmp_path / "log"), "-c", "nginx.conf"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_the_unit_starts_a_replica_on_its_port_and_stops_it_in_order() -> None:
    unit = text("mcp-hub@.service")
    assert "serve --http --port %i --config /etc/mcp-hub/servers.yaml" in unit
    for line in ("KillMode=mixed", "Restart=always", "DynamicUser=yes"):
        assert f"\n{line}\n" in unit
    assert json.loads(re.findall(r"TimeoutStopSec=(\d+)", unit)[0]) > 30
