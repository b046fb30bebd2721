"""Every setting of every part, typed and checked. This package imports nothing but `common`."""

from transducer_gn.config.data import (
    BatchConfig,
    DataConfig,
    NoiseConfig,
    SpecAugmentConfig,
    StorageConfig,
    VolumeConfig,
)
from transducer_gn.config.evaluation import (
    EVERYDAY,
    SHOW_ALL,
    DisplayConfig,
    EvaluationDataConfig,
    LatencyConfig,
    RecognitionConfig,
    SystemConfig,
)
from transducer_gn.config.experiment import Config, config_from, config_parser, read_config
from transducer_gn.config.fields import changed_settings
from transducer_gn.config.front_end import FrontEndConfig
from transducer_gn.config.model import EncoderConfig, JoinerConfig, ModelConfig, PredictorConfig, StreamingConfig
from transducer_gn.config.mwer import MwerConfig
from transducer_gn.config.reading import ReadingConfig
from transducer_gn.config.serving import ServingConfig
from transducer_gn.config.synthetic import MiniCorpusConfig
from transducer_gn.config.training import (
    AlignmentConfig,
    CompetitorConfig,
    NormalisationConfig,
    ObjectiveConfig,
    OptimiserConfig,
    SearchConfig,
    TrainingConfig,
)

__all__ = [
    "EVERYDAY",
    "SHOW_ALL",
    "AlignmentConfig",
    "BatchConfig",
    "CompetitorConfig",
    "Config",
    "DataConfig",
    "DisplayConfig",
    "EncoderConfig",
    "EvaluationDataConfig",
    "FrontEndConfig",
    "JoinerConfig",
    "LatencyConfig",
    "MiniCorpusConfig",
    "ModelConfig",
    "MwerConfig",
    "NoiseConfig",
    "NormalisationConfig",
    "ObjectiveConfig",
    "OptimiserConfig",
    "PredictorConfig",
    "ReadingConfig",
    "RecognitionConfig",
    "SearchConfig",
    "ServingConfig",
    "SpecAugmentConfig",
    "StorageConfig",
    "StreamingConfig",
    "SystemConfig",
    "TrainingConfig",
    "VolumeConfig",
    "changed_settings",
    "config_from",
    "config_parser",
    "read_config",
]
