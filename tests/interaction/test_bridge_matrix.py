"""Every question in every combination of eras and fronts: what happens is what `docs/bridge.md` says."""

import pytest

from tests.interaction.bridge import DOCUMENT, measure_all, render

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("runs_tools", [False, True], ids=["direct", "run_tool"])
@pytest.mark.proof
async def test_the_matrix_is_as_documented(runs_tools: bool) -> None:
    found = render(await measure_all(runs_tools=runs_tools))
    print(found)
    assert found == DOCUMENT.read_text("utf-8"), "run `python -m tests.interaction.bridge` and read what changed"
