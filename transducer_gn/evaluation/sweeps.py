"""A run measured several times over: at the end of every epoch, or with chunks of every size.

Results of each point stand in a folder of their own, apart from those that a report is about.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from transducer_gn.common.errors import require
from transducer_gn.config import EvaluationDataConfig, LatencyConfig, RecognitionConfig
from transducer_gn.evaluation.decoding import PartDecoder, chosen_parts, prepared_data, search_folder
from transducer_gn.evaluation.latency_results import FOLDER, Latency, find_latency, measure_part, read_latency
from transducer_gn.evaluation.results import Results, find_results, read_results
from transducer_gn.recognition.system import System


@dataclass(frozen=True)
class Point:
    """What is known of a test set at one point of a sweep.

    Attributes:
        number: of the epoch, from 1, or of the frames in a chunk
        results: of decoding
        latency: when words come out; None if that was not measured of the same system and search
    """

    number: int
    results: Results
    latency: Latency | None


@dataclass(frozen=True)
class Sweep:
    """Along what a run is measured.

    Attributes:
        item: name of a point, which stands in EXP-DIR/ITEMs/ITEM-N
    """

    item: str

    def place(self, exp_dir: Path, number: int) -> Path:
        """Where the results of a point go."""
        return exp_dir / f"{self.item}s" / f"{self.item}-{number}"

    def find(self, exp_dir: Path, part: str) -> list[Point]:
        """What was measured of a test set, point after point; UserError if a file cannot be read."""
        found = []
        for number in sorted(_numbers(self.item, self.place(exp_dir, 0).parent.glob(f"{self.item}-*"))):
            folder = self.place(exp_dir, number)
            decoded, measured = find_results(folder), find_latency(folder)
            if part in decoded:
                results = read_results(decoded[part])
                latency = read_latency(measured[part]) if part in measured else None
                # After a stop the newest of both may be of different parameters, or of another search.
                if latency is not None and not results.identity.items() <= latency.identity.items():
                    latency = None
                found.append(Point(number, results, latency))
        return found


EPOCHS, CHUNKS = Sweep("epoch"), Sweep("chunk")


def measure_point(
    folder: Path,
    system: System,
    settings: RecognitionConfig,
    choice: EvaluationDataConfig,
    measured: LatencyConfig,
) -> None:
    """Decode and measure all chosen sets into the folder of a point, but for what is there."""
    is_live = measured.display and system.chunk(settings).size is not None
    require(
        settings.method == "beam" or not is_live,
        "--method",
        "live texts are always searched with a beam; add --display false",
    )
    data = prepared_data(choice, system)
    for part in chosen_parts(choice, data):
        PartDecoder(search_folder(folder, settings), system, settings, data, part, choice.max_duration).run()
        measure_part(folder / FOLDER, system, settings, measured, data, part, choice.max_duration)


def trained_epochs(exp_dir: Path) -> list[int]:
    """The epochs of a run that have a checkpoint, in order."""
    return sorted(_numbers("epoch", exp_dir.glob("epoch-*.pt")))


def _numbers(item: str, paths: Iterable[Path]) -> list[int]:
    """N of all that are called ITEM-N or ITEM-N.pt."""
    return [int(found[1]) for path in paths if (found := re.fullmatch(rf"{item}-(\d+)(\.pt)?", path.name))]
