"""What was injected so far, and what came of it: all that a later call must know to go on."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from fault_files import FileKind
from fault_lives import Life

# Seconds within which a rank that hangs is noticed: `HANG_TIMEOUT` of them, and what a busy machine takes to start the
# others, since who has not started yet waits for nobody.
NOTICED_WITHIN = 120
COUNTERS = ("kinds", "stages", "files", "files_left")


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
        files: kills while a file was written, by the kind of file
        files_left: those of them that left the file behind half-written
        hangs: seconds that each rank which hung was not noticed
        next_kinds: what comes next, the last first
        lost: runs that ended otherwise than the undisturbed one, and in what
    """

    seed: int
    runs: int = 0
    calls: int = 0
    size: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)
    files_left: Counter[str] = field(default_factory=Counter)
    hangs: list[float] = field(default_factory=list)
    next_kinds: list[str] = field(default_factory=list)
    lost: list[dict[str, Any]] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """How many there were."""
        return self.kinds.total()

    def least_hit(self, kinds: tuple[FileKind, ...]) -> tuple[FileKind, ...]:
        """The kinds of files whose writing was disturbed least so far."""
        least = min((self.files[kind.name] for kind in kinds), default=0)
        return tuple(kind for kind in kinds if self.files[kind.name] == least)

    def count(self, kind: str, life: Life) -> None:
        """Count a fault that was done to a life, and what it says of it."""
        self.kinds[kind] += 1
        if life.hit is not None:
            self.files[life.hit] += 1
            self.files_left[life.hit] += life.was_left
        if life.seconds_hung is not None:
            self.hangs.append(round(life.seconds_hung, 1))
            if life.seconds_hung > NOTICED_WITHIN:
                self.lost.append({"run": self.runs, "different": [f"a hang noticed after {life.seconds_hung:.0f} s"]})
        life.hit = life.seconds_hung = None

    def compare(self, different: list[str]) -> None:
        """Note the end of a run, with names of what is not as it must be."""
        if different:
            self.lost.append({"run": self.runs, "different": different[:10]})
        self.runs += 1

    def to_json(self) -> dict[str, Any]:
        """As the result has it."""
        return asdict(self) | {name: dict(sorted(getattr(self, name).items())) for name in COUNTERS}

    @staticmethod
    def from_json(values: dict[str, Any]) -> "Tally":
        """From `to_json`, also of a program that counted less."""
        return Tally(**values | {name: Counter(values.get(name, {})) for name in COUNTERS})
