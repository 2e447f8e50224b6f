"""The program of the fixture server, which finds its modules wherever it is started."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[2])

from tests.upstreams.server import main  # noqa: E402  only there once the path is set

if __name__ == "__main__":
    main()
