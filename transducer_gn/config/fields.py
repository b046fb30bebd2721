"""What a field of a section says about itself, beside its type and default."""

from dataclasses import field, fields, is_dataclass
from typing import Any

_MAY_CHANGE = "may change on resume"


def may_change(default: Any) -> Any:
    """A setting that changes nothing of what is computed: a run may be resumed with another value."""
    return field(default=default, metadata={_MAY_CHANGE: True})


def changed_settings(before: Any, now: Any, section: str = "") -> list[str]:
    """Names and values of the settings that differ between two of the same dataclass, but those that may change."""
    changed = []
    for setting in fields(now):
        name = f"{section}{setting.name}"
        old, new = getattr(before, setting.name), getattr(now, setting.name)
        if is_dataclass(new):
            changed += changed_settings(old, new, f"{name}.")
        elif old != new and not setting.metadata.get(_MAY_CHANGE, False):
            changed.append(f"{name} (was {old}, is {new})")
    return changed
