"""Every fuzz target, by name."""

from rigs.fuzz.call_targets import CALL_TARGETS
from rigs.fuzz.catalog_targets import CATALOG_TARGETS
from rigs.fuzz.config_targets import CONFIG_TARGETS
from rigs.fuzz.recovery_targets import RECOVERY_TARGETS
from rigs.fuzz.target import Target
from rigs.fuzz.wire_targets import WIRE_TARGETS

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (*WIRE_TARGETS, *RECOVERY_TARGETS, *CONFIG_TARGETS, *CATALOG_TARGETS, *CALL_TARGETS)
}
