"""What was injected so far, and what came of it: all that a later call must know to go on."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Tally:
    """Faults done to one thing, again and again.

    Attributes:
        seed: of moments and kinds
        runs: that were disturbed and came to their end
        calls: of the command
        size: updates of a training, or files that a command makes
        kinds: faults done, by kind
        stages: faults done, by the stage of the command that they fell into
        next_kinds: what comes next, the last first
        lost: runs that ended otherwise than the undisturbed one, and in what
    """

    seed: int
    runs: int = 0
    calls: int = 0
    size: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    next_kinds: list[str] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many there were."""
        return self.kinds.total()

    def compare(self, different: list[str]) -> None:
        """Note the end of a run, with names of what is not as it must be."""
        if different:
            self.lost.append({"run": self.runs, "different": different[:10]})
        self.runs += 1

    def to_json(self) -> dict[str, Any]:
        """As the result has it."""
        return asdict(self) | {"kinds": dict(sorted(self.kinds.items())), "stages": dict(sorted(self.stages.items()))}

    @staticmethod
    def from_json(values: dict[str, Any]) -> "Tally":
        """From `to_json`."""
        return Tally(**values | {name: Counter(values[name]) for name in ("kinds", "stages")})
