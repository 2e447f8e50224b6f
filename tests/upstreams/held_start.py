"""A server that starts when it may: `held_start.py GATE COMMAND…` runs the command once the file GATE is there."""

import os
import select
import sys
import time
from pathlib import Path


def main() -> None:
    gate, *command = sys.argv[1:]
    poll = select.poll()
    poll.register(sys.stdin, select.POLLHUP)
    while not Path(gate).exists():
        if any(event & select.POLLHUP for _, event in poll.poll(0)):
            return
        time.sleep(0.01)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
