"""What a manifest says about an utterance besides its text: an opaque mapping, `custom`, of which little is known here.

An utterance belongs to a *group*, for which error rates are also given apart, and to a *unit*: utterances of one unit
share some of their sound, stand or fall together, and are drawn together. Fields of two numbers are stretches of time
in seconds and move with the speed. Everything else is for whoever made the corpus.
"""

from collections.abc import Mapping
from typing import Any

DEFAULT_GROUP = "ordinary"

# Names of fields on disk: the group, and the id of an utterance with the same sound.
GROUP_FIELD = "kind"
SAME_SOUND_FIELD = "twin"


def group_of(custom: Mapping[str, Any]) -> str:
    """The group of an utterance."""
    return custom.get(GROUP_FIELD) or DEFAULT_GROUP


def unit_of(utterance: str, custom: Mapping[str, Any]) -> str:
    """The unit of an utterance: its id, or the first of the two ids where another has the same sound."""
    return min(utterance, custom.get(SAME_SOUND_FIELD) or utterance)


def group_order(group: str) -> tuple[bool, str]:
    """Sorts the default group before all others, and these by name."""
    return group != DEFAULT_GROUP, group


def time_spans(custom: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Start and end in seconds of the stretches of time that the manifest names."""
    return {name: (value[0], value[1]) for name, value in custom.items() if is_time_span(value)}


def is_time_span(value: Any) -> bool:
    """Whether the value of a field is a stretch of time: two numbers."""
    return isinstance(value, list | tuple) and len(value) == 2 and all(type(time) in (int, float) for time in value)


def at_speed(custom: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The fields of an utterance that is played `factor` times as fast."""
    return {
        name: [round(time / factor, 4) for time in value] if is_time_span(value) else value
        for name, value in custom.items()
    }
