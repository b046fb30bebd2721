"""Which files a recipe uses where nobody names them: settings that suit a corpus, and its experiments."""

from collections.abc import Sequence
from pathlib import Path

from transducer_gn.config.recipe import RecipeConfig
from transducer_gn.data.layout import assign_roles, find_parts, read_part

REPOSITORY = Path(__file__).resolve().parents[2]
# Words of training text, some two hours of speech, from which on the larger system on Moonshine is the better one.
ENOUGH_WORDS = 20_000


def system_on_moonshine(settings: RecipeConfig) -> str:
    """Which of the systems on Moonshine suits the amount of text that there is to train on."""
    root = Path(settings.corpus)
    if not root.is_dir():
        return "moonshine"
    chosen: dict[str, Sequence[str]] = {
        role: names.split(",")
        for role, names in (("train", settings.train), ("dev", settings.dev), ("test", settings.test))
        if names
    }
    parts = assign_roles(find_parts(root), chosen)["train"]
    words = sum(len(utterance.text.split()) for part in parts for utterance in read_part(root, part)[0])
    return "moonshine" if words >= ENOUGH_WORDS else "moonshine-small"


def experiments_file(given: str | None, corpus: str, system: str) -> Path:
    """The file that says which runs there are."""
    folder = REPOSITORY / "conf" / "experiments"
    if given is not None:
        return folder / f"{given}.yaml" if (folder / f"{given}.yaml").is_file() else Path(given)
    if (folder / f"{corpus}.yaml").is_file():
        return folder / f"{corpus}.yaml"
    return folder / ("paper.yaml" if system in ("librispeech", "paper") else "small.yaml")
