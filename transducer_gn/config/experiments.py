"""Experiments as data: which runs there are, what each branches off from, which settings it changes, what role it has.

conf/experiments/paper.yaml explains the files. The runner trains what they say; the report reads the roles. Whatever is
wrong in a file ends in a sentence that names file, run and field.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from transducer_gn.common.errors import UserError
from transducer_gn.common.protocols import IsDataclass
from transducer_gn.common.typed import MOST_BITS, shown
from transducer_gn.config.experiment import Config

ROLES = ("baseline", "challenger", "lookahead")
SECTIONS = ("schedule", "stages", "runs")
COUNT = "{count}"
# What values of a field may be, and how a sentence says so.
KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "stage": (str, "the name of a stage"),
    "role": (str, f"one of {', '.join(ROLES)}"),
    "parent": (str, "the name of a run"),
    "after": ((int, str), "an epoch or a name of the schedule"),
    "epochs": ((int, str), "a number of epochs or a name of the schedule"),
    "config": (list, "a list of files"),
    "settings": (dict, "settings and their values"),
    "alone": (bool, "true or false"),
    "only_if_parent_ends": (bool, "true or false"),
}


@dataclass(frozen=True)
class ScheduleConfig:
    """Numbers that runs name instead of repeating them; flags of the runner have the same names and win.

    Attributes:
        epochs: epochs in all, those before a branch included
        baseline_epochs: epochs of the baseline
        branch_epoch: epoch that branches start from
        early_epoch: epoch of the early branch
        counts: numbers of competitors other than that of the settings for branches
    """

    epochs: int | str
    baseline_epochs: int | str
    branch_epoch: int | str
    early_epoch: int | str
    counts: tuple[int, ...]

    def number(self, value: int | str, place: str) -> int:
        """A number, given as such or by the name of another one of the schedule."""
        seen = []
        while isinstance(value, str):
            numbers = [name.name for name in fields(self) if name.name != "counts"]
            if value not in numbers or value in seen:
                raise UserError(f"{place}: must be a whole number or one of {', '.join(numbers)}, not {shown(value)}")
            seen.append(value)
            value = getattr(self, value)
        return value

    def resolved(self, place: str) -> "ScheduleConfig":
        """The same with numbers in place of names."""
        names = [name.name for name in fields(self) if name.name != "counts"]
        numbers: dict[str, Any] = {name: self.number(getattr(self, name), f"{place}: {name}") for name in names}
        return replace(self, **numbers)


@dataclass(frozen=True)
class RunConfig:
    """A run as a file describes it; conf/experiments/paper.yaml says what the fields mean.

    Attributes:
        name: its folder's name; with `{count}` in it, one run for each count of the schedule
    """

    name: str
    stage: str
    role: str | None = None
    parent: str | None = None
    after: int | str = "branch_epoch"
    epochs: int | str = "epochs"
    config: tuple[Path, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False
    only_if_parent_ends: bool = False

    def is_called(self, name: str) -> bool:
        """Whether a run of this name is this one, or one of those that it stands for."""
        return re.fullmatch(re.escape(self.name).replace(re.escape(COUNT), r"\d+"), name) is not None


@dataclass(frozen=True)
class Experiments:
    """All runs of a file.

    Attributes:
        path: the file
        schedule: its numbers
        stages: titles of the training stages by name, in order; numbers of the schedule may stand in them
        runs: in the order in which they are trained
    """

    path: Path
    schedule: ScheduleConfig
    stages: dict[str, str]
    runs: tuple[RunConfig, ...]

    def scheduled(self, **changes: Any) -> "Experiments":
        """With these numbers of the schedule, None for as they are: every run by itself, and numbers for names."""
        changed = {name: value for name, value in changes.items() if value is not None}
        schedule = replace(self.schedule, **changed).resolved(f"{self.path}: schedule")
        runs = []
        for run in self.runs:
            place = f"{self.path}: run {run.name}"
            epochs = schedule.number(run.epochs, f"{place}: epochs")
            after = schedule.number(run.after, f"{place}: after")
            for count in schedule.counts if COUNT in run.name else (0,):
                settings = {name: value.replace(COUNT, str(count)) for name, value in run.settings.items()}
                name = run.name.replace(COUNT, str(count))
                runs.append(replace(run, name=name, epochs=epochs, after=after, settings=settings))
        titles = {name: with_numbers(title, schedule) for name, title in self.stages.items()}
        return Experiments(self.path, schedule, titles, tuple(runs))

    def in_role(self, role: str, names: list[str]) -> list[str]:
        """Which of the runs of these names have a role, in the order of the file."""
        return [name for run in self.runs if run.role == role for name in names if run.is_called(name)]


def read_experiments(path: Path) -> Experiments:
    """Read a file of experiments and the one it stands on; UserError that names what is wrong."""
    content = read_layers(path)
    for name in SECTIONS:
        if name not in content:
            raise UserError(f"{path}: there is no section {name}, here or in its base")
    schedule = read_schedule(path, content["schedule"])
    stages = content["stages"]
    for name, title in stages.items():
        if not isinstance(title, str):
            raise UserError(f"{path}: stages: {name}: must be a title, not {shown(title)}")
        try:
            with_numbers(title, schedule)
        except KeyError as error:
            raise UserError(f"{path}: stages: {name}: {error} is no name of the schedule") from error
    runs = [read_run(path, name, values) for name, values in content["runs"].items()]
    check_places(path, stages, runs)
    order = list(stages)
    runs.sort(key=lambda run: order.index(run.stage))
    check_parents(path, runs)
    found = Experiments(path, schedule, stages, tuple(runs))
    found.scheduled()
    return found


def with_numbers(title: str, schedule: ScheduleConfig) -> str:
    """A title with the schedule's numbers in place of their names; KeyError with one that is none of them."""
    numbers = asdict(schedule)
    return re.sub("{(.*?)}", lambda found: str(numbers[found[1]]), title)


class Loader(yaml.SafeLoader):
    """Reads YAML without running code from it, and without numbers that take long to be written out."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """A whole number."""
        value: int = super().construct_yaml_int(node)
        if value.bit_length() > MOST_BITS:
            raise ValueError("a number is too large")
        return value


Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)


def read_layers(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The sections of a file, on top of those of its base: fields of a run replace the base's."""
    try:
        if path.resolve() in above:
            raise UserError(f"{path}: stands on itself; remove a base")
        content = yaml.load(path.read_text(encoding="utf-8"), Loader)
    except OSError as error:
        raise UserError(f"there are no experiments {path}; name a file of them with --experiments") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: must hold the sections {', '.join(SECTIONS)}")
    base = content.pop("base", None)
    for name, section in content.items():
        if name not in SECTIONS:
            raise UserError(f"{path}: {name}: is no section; there are base, {', '.join(SECTIONS)}")
        if not isinstance(section, dict):
            raise UserError(f"{path}: {name}: must hold names and values, not {shown(section)}")
    resolve_files(path, content.get("runs", {}))
    if base is None:
        return content
    merged = read_layers(path.parent / str(base), (*above, path.resolve()))
    for name, section in content.items():
        values = merged.setdefault(name, {})
        for key, value in section.items():
            both = name == "runs" and isinstance(value, dict) and key in values
            values[key] = {**values[key], **value} if both else value
    return merged


def resolve_files(path: Path, runs: dict[str, Any]) -> None:
    """Turn names of settings files, which are relative to the file that gives them, into paths."""
    for name, values in runs.items():
        if not isinstance(values, dict):
            raise UserError(f"{path}: run {name}: must hold fields and values, not {shown(values)}")
        files = values.get("config", [])
        if not isinstance(files, list):
            raise UserError(f"{path}: run {name}: config: must be a list of files, not {shown(files)}")
        for file in files:
            if not isinstance(file, str) or not is_file(path.parent / file):
                raise UserError(f"{path}: run {name}: config: there is no file {shown(file)} in {path.parent}")
        if "config" in values:
            values["config"] = [(path.parent / file).resolve() for file in files]


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that none can have is no error."""
    try:
        return path.is_file()
    except OSError:
        return False


def read_schedule(path: Path, values: dict[str, Any]) -> ScheduleConfig:
    """The numbers of a file."""
    names = [known.name for known in fields(ScheduleConfig)]
    for name in values:
        if name not in names:
            raise UserError(f"{path}: schedule: {name}: is no number of a schedule; there are {', '.join(names)}")
    for name in names:
        if name not in values:
            raise UserError(f"{path}: schedule: {name} is missing")
        if name != "counts" and not (is_whole(values[name]) or isinstance(values[name], str)):
            raise UserError(f"{path}: schedule: {name}: must be a whole number, not {shown(values[name])}")
    counts = values["counts"]
    if not isinstance(counts, list) or not all(map(is_whole, counts)):
        raise UserError(f"{path}: schedule: counts: must be a list of whole numbers, not {shown(counts)}")
    return ScheduleConfig(**{**values, "counts": tuple(counts)})


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number of 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def read_run(path: Path, name: str, values: dict[str, Any]) -> RunConfig:
    """A run from its fields, each of the right kind."""
    place = f"{path}: run {name}"
    known = {item.name: item for item in fields(RunConfig) if item.name != "name"}
    for key, value in values.items():
        if key not in known:
            raise UserError(f"{place}: {key}: is no field of a run; there are {', '.join(known)}")
        kind, words = KINDS[key]
        is_number = kind == (int, str) and not (is_whole(value) or isinstance(value, str))
        if not isinstance(value, kind) or is_number:
            raise UserError(f"{place}: {key}: must be {words}, not {shown(value)}")
    for key, item in known.items():
        if item.default is MISSING and item.default_factory is MISSING and key not in values:
            raise UserError(f"{place}: {key} is missing")
    if values.get("role", ROLES[0]) not in ROLES:
        raise UserError(f"{place}: role: must be {KINDS['role'][1]}, not {shown(values['role'])}")
    settings, files = read_settings(place, values.get("settings", {})), tuple(values.get("config", ()))
    return RunConfig(**{**values, "name": str(name), "settings": settings, "config": files})


def read_settings(place: str, settings: dict[str, Any]) -> dict[str, str]:
    """Settings as the flags of train.py take them, in words: `true`, `null`, numbers."""
    known = set(setting_names(Config))
    for name, value in settings.items():
        if name not in known:
            raise UserError(f"{place}: settings: {name}: is no setting of train.py; see its --help")
        if isinstance(value, dict):
            raise UserError(f"{place}: settings: {name}: must be one value, not {shown(value)}")
    return {name: value if isinstance(value, str) else yaml_word(value) for name, value in settings.items()}


def yaml_word(value: Any) -> str:
    """A value as one writes it on a command line."""
    return yaml.safe_dump(value, default_flow_style=True).splitlines()[0]


def setting_names(section: type[IsDataclass], prefix: str = "") -> Iterator[str]:
    """Names of all settings, such as model.encoder.dim."""
    for item in fields(section):
        if isinstance(item.type, type) and is_dataclass(item.type):
            yield from setting_names(item.type, f"{prefix}{item.name}.")
        else:
            yield f"{prefix}{item.name}"


def check_places(path: Path, stages: dict[str, str], runs: list[RunConfig]) -> None:
    """Every run has a stage that there is."""
    for run in runs:
        if run.stage not in stages:
            raise UserError(f"{path}: run {run.name}: stage: must be one of {', '.join(stages)}, not {run.stage!r}")


def check_parents(path: Path, runs: list[RunConfig]) -> None:
    """Every parent is a run that comes before its children."""
    before: set[str] = set()
    for run in runs:
        if run.parent is not None and run.parent not in before:
            raise UserError(f"{path}: run {run.name}: parent: there is no run {run.parent!r} before this one")
        before.add(run.name)
