"""Everything at once, at random: questions, logs, progress, subscriptions, changed lists, lost connections.

Two or three clients share one process of each server. Whatever a client is sent, on any stream, must be its own, and
it must get all that is. `INTERLEAVE_EXAMPLES` (24) is how many schedules are tried, `INTERLEAVE_SEED` which.
"""

import itertools
import json
import os
import random
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest

from tests.e2e.client import HttpClient, Hub, Message, until
from tests.interaction.fronts import HANDSHAKE, MODERN, connected, http_hub
from tests.interaction.hearing import ID, UPDATED
from tests.interaction.interleaving import PATIENCE, Call, Client, Ear, Plan
from tests.upstreams.launch import argv, events, servers_yaml

pytestmark = pytest.mark.anyio

EXAMPLES = int(os.environ.get("INTERLEAVE_EXAMPLES", "24"))
SEED = int(os.environ.get("INTERLEAVE_SEED", random.randrange(1 << 30)))
LANES = 3
"""Schedules that run side by side, each at a handshake server of its own and all at one modern one."""
SERVERS = [f"h{i}" for i in range(6)]
"""Each is new to the hub in its first schedule: it has asked nothing yet."""
SECRET = re.compile(r"s\d+p\d+l\d+e")
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
DECLINED = ("nobody to ask", "the call has ended", "the question was withdrawn")
