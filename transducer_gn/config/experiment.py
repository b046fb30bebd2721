"""Every setting of an experiment: typed, checked dataclasses that a YAML file fills and flags override.

A command makes its parser with `config_parser`, adds flags of its own if it has any, and reads the settings with
`read_config`. `--config` may be given several times; later files and flags win. A file may stand on another (`base:`).
A new section is a new frozen dataclass and one more field of `Config`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import NoneType
from typing import Any, get_args

from jsonargparse import Namespace

from transducer_gn.common.command_line import CommandParser, Verbatim
from transducer_gn.common.errors import UserError, require
from transducer_gn.common.typed import shown, type_hints, typed
from transducer_gn.config.data import DataConfig
from transducer_gn.config.evaluation import DEFAULT_TOKENS_PER_FRAME
from transducer_gn.config.model import ModelConfig
from transducer_gn.config.mwer import MwerConfig
from transducer_gn.config.reading import ReadingConfig
from transducer_gn.config.training import (
    AlignmentConfig,
    CompetitorConfig,
    NormalisationConfig,
    ObjectiveConfig,
    OptimiserConfig,
    SearchConfig,
    TrainingConfig,
)

# Settings that had other names once.
RENAMED = {
    "optimiser.lr_batches": "optimiser.lr_updates",
    "optimiser.warmup_batches": "optimiser.warmup_updates",
    "data.batches.max_tokens_per_frame": "data.batches.max_token_density",
}


@dataclass(frozen=True)
class Config:
    """All sections of an experiment.

    Attributes:
        model: the Transducer
        data: what to train and validate on
        alignment: help for the beginning of training
        normalisation: the way from local to global normalisation
        search: how beam searches run
        competitors: the search for competitors in training
        objective: how the objective is evaluated
        mwer: expected errors as a part of the objective
        reading: text that is read beside speech
        optimiser: optimiser and learning rate
        training: the loop
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    alignment: AlignmentConfig = field(default_factory=AlignmentConfig)
    normalisation: NormalisationConfig = field(default_factory=NormalisationConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    competitors: CompetitorConfig = field(default_factory=CompetitorConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    mwer: MwerConfig = field(default_factory=MwerConfig)
    reading: ReadingConfig = field(default_factory=ReadingConfig)
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        require(
            not self.normalisation.exact or self.model.predictor.kind == "finite-state",
            "normalisation.exact",
            'needs model.predictor.kind = "finite-state", since no other predictor has an exact sum',
        )
        require(
            not (self.normalisation.exact and self.mwer.is_used),
            "mwer.weight",
            "must be 0 with normalisation.exact, which has no list to expect errors of",
        )

    def searched_tokens_per_frame(self) -> int:
        """Tokens per frame that recognition may emit: no more than competitors had in training, or 3 without any.

        Nothing has taught a globally normalised system to give low weights to sequences that Z never held, nor one that
        was trained for expected errors anything about those that no list held. A locally normalised one has learnt this
        from every step's softmax.
        """
        if self.normalisation.exact:
            return self.normalisation.exact_tokens_per_frame
        has_competitors = self.normalisation.alpha < 1 or self.mwer.is_used
        return self.competitors.max_tokens_per_frame if has_competitors else DEFAULT_TOKENS_PER_FRAME


def config_parser(description: str | None) -> CommandParser:
    """A parser with `--config FILE` and one flag per setting, such as `--model.encoder.dim`."""
    parser = CommandParser(description=description, formatter_class=Verbatim, renamed=RENAMED)
    parser.add_argument("--config", action="config", help="YAML file with settings; may be given several times")
    parser.add_class_arguments(Config)
    return parser


def read_config(parser: CommandParser, arguments: list[str] | None = None) -> tuple[Config, Namespace]:
    """Parse `arguments` (those of the program if None) into the settings and the script's own flags.

    Raises `UserError` if a setting has no value or contradicts another.
    """
    namespace = parser.parse_args(arguments)
    _check_given(Config, namespace)
    values = parser.instantiate(namespace)
    return Config(**{section.name: values[section.name] for section in fields(Config)}), namespace


def _check_given(kind: type, values: Namespace, place: str = "") -> None:
    """Every setting has a value, and every section settings.

    The parser takes a name with nothing after it for any type, and anything for a section; a later file or flag makes
    of that a section with nothing else in it.
    """
    for name, hint in type_hints(kind).items():
        if name not in values:
            raise UserError(f"--{place.rstrip('.')} must be names and values of settings wherever it is given")
        value = values[name]
        if value is None and NoneType not in get_args(hint):
            raise UserError(f"--{place}{name} has no value; give it one, or leave its name out of the file")
        if is_dataclass(hint):
            if not isinstance(value, Namespace):
                raise UserError(f"--{place}{name} must be names and values of settings, not {shown(value)}")
            _check_given(hint, value, f"{place}{name}.")  # type: ignore[arg-type]


def config_from(settings: Mapping[str, Any]) -> Config:
    """The configuration that a file holds as nested dictionaries; UserError if it is of another version."""
    # Not by way of a parser of command lines, which takes texts for names of files and opens them.
    try:
        return typed(Config, settings, "settings")
    except (ValueError, ArithmeticError, TypeError) as error:
        raise UserError(f"the settings in this checkpoint are of another version of this program: {error}") from error
