"""Progress as fast as an upstream can send it: nothing is lost, merged or out of order for a client that reads."""

from pathlib import Path

import pytest

from tests.interaction.fronts import ERAS, MODERN, connected, http_hub, stdio_hub
from tests.upstreams.launch import argv, servers_yaml

pytestmark = pytest.mark.anyio

COUNT = 20_000


def check(progress: list[dict[str, object]]) -> None:
    assert [params["progress"] for params in progress] == list(range(1, COUNT + 1))
    assert not any("_meta" in params for params in progress)


@pytest.mark.parametrize("era", ERAS)
async def test_twenty_thousand_notifications_arrive_over_http(era: str, tmp_path: Path) -> None:
    async with http_hub(servers_yaml({"a": argv()}), tmp_path) as running, connected(running, era) as peer:
        check((await peer.call("a_progress", {"n": COUNT}, token="p")).progress)


async def test_twenty_thousand_notifications_arrive_over_stdio(tmp_path: Path) -> None:
    async with stdio_hub(servers_yaml({"a": argv()}), tmp_path) as client, connected(client, MODERN) as peer:
        check((await peer.call("a_progress", {"n": COUNT}, token="p")).progress)
