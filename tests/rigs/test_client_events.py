"""A short case of `rigs.clients.events`, if its client can be installed."""

from pathlib import Path

import pytest

from rigs.clients.events import RUNS, ai_sdk_command, subscribes
from rigs.clients.install import NotInstalled

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


async def test_a_client_of_others_gets_each_event_once_and_hears_of_the_end(tmp_path: Path) -> None:
    try:
        ai_sdk_command()
    except NotInstalled as reason:
        pytest.skip(str(reason))
    await subscribes(RUNS[0], tmp_path)
