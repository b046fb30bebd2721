"""Settings of the runner: which experiments, on what, how many at a time."""

import re
from dataclasses import dataclass
from typing import Literal

from transducer_gn.common.errors import require
from transducer_gn.config.model import ModelConfig

NUMBERS = ("stage", "stop_stage", "avg", "epochs", "baseline_epochs", "branch_epoch", "early_epoch")
AT_LEAST_ONE = ("world_size", "jobs", "beam", "latency_utterances")


@dataclass(frozen=True)
class RecipeConfig:
    """What to run. Numbers of the schedule that are null are those of the experiments' file.

    Attributes:
        corpus: as for prepare.sh; settings of conf/CORPUS.yaml and conf/CORPUS-global.yaml
        front_end: moonshine-tiny to train on a public pretrained encoder, with settings of conf/moonshine.yaml and
            conf/moonshine-global.yaml, or of conf/moonshine-small.yaml for transcripts of fewer than 20,000 words
        front_end_file: the pretrained encoder's file, where prepare.sh would not find it
        train: parts of the corpus to train on, PART[,PART...]; null for those whose names start with train
        dev: parts to choose epochs by; null for those whose names start with dev
        test: parts to test on; null for those whose names start with test
        stage: first stage
        stop_stage: last stage
        experiments: file that says which runs there are, or its name in conf/experiments; null for
            conf/experiments/CORPUS.yaml, or small where the corpus has settings of its own, or paper; with a
            pretrained front end, recorded or recorded-small
        only: only these runs, NAME[,NAME...]
        world_size: processes for each training, one per GPU
        jobs: runs that are trained, decoded or measured side by side
        exp_root: results; null for exp/CORPUS, or exp/CORPUS-FRONT-END
        data_dir: what prepare.sh makes; null for data/CORPUS, or data/CORPUS-FRONT-END
        dl_dir: downloads, for prepare.sh
        conf: settings of the model and of local training
        global_conf: what branches change
        epochs: epochs in all, those before a branch included
        baseline_epochs: epochs of the baseline
        branch_epoch: epoch that branches start from
        early_epoch: epoch of the early branch
        counts: numbers of competitors other than that of --global-conf, N[,N...]
        sets: sets to decode, SET[,SET...]; null for all dev and test sets
        latency_sets: sets for emission times; null for those of --sets
        beam: hypotheses in decoding
        avg: use the parameters of each run's last epoch, averaged over so many epochs; 0 for the epoch with the lowest
            error rate on the dev set, its parameters as they were
        last: use each run's last epoch also without --avg, so that all runs from one branch have as many updates
        latency_utterances: emission times of so many utterances of each set; null for all
        display: also measure when a live recogniser shows words
        every_epoch: also decode and measure every epoch of every run, for curves over training
        chunks: also decode and measure every run with chunks of so many frames, N[,N...], for curves of errors against
            delay; with --seeds the report has those of the first seed
        seeds: further seeds, N[,N...]: the same runs again in EXP-ROOT-seedN, and means over all in the report
        baseline: run that the report compares with; null for the last of the experiments' baselines that is trained
        challenger: run that the report puts first; null for the best on the dev set
        prepare_flags: further flags for prepare.sh, such as "--musan --nj 8"
        train_flags: further flags for every training
    """

    corpus: str = "librispeech"
    front_end: Literal["moonshine-tiny"] | None = None
    front_end_file: str | None = None
    train: str | None = None
    dev: str | None = None
    test: str | None = None
    stage: int = 0
    stop_stage: int = 100
    experiments: str | None = None
    only: str | None = None
    world_size: int = 1
    jobs: int = 1
    exp_root: str | None = None
    data_dir: str | None = None
    dl_dir: str = "download"
    conf: str | None = None
    global_conf: str | None = None
    epochs: int | None = None
    baseline_epochs: int | None = None
    branch_epoch: int | None = None
    early_epoch: int | None = None
    counts: str | None = None
    sets: str | None = None
    latency_sets: str | None = None
    beam: int = 50
    avg: int = 0
    last: bool = False
    latency_utterances: int | None = None
    display: bool = True
    every_epoch: bool = False
    chunks: str | None = None
    seeds: str | None = None
    baseline: str | None = None
    challenger: str | None = None
    prepare_flags: str = ""
    train_flags: str = ""

    def __post_init__(self) -> None:
        for names, least in ((NUMBERS, 0), (AT_LEAST_ONE, 1)):
            for name in names:
                value = getattr(self, name)
                require(value is None or value >= least, flag(name), f"must be at least {least}, not {value}")
        for name in ("counts", "chunks", "seeds"):
            value = getattr(self, name)
            require(
                not value or re.fullmatch(r"\d+(,\d+)*", value) is not None,
                flag(name),
                f"must be whole numbers with commas between them, not {value!r}",
            )
        require(0 not in self.chunk_sizes(), "--chunks", "must be above 0")
        require(self.corpus != "", "--corpus", "must not be empty")
        require(
            self.front_end_file is None or self.front_end is not None,
            "--front-end-file",
            "is the file of --front-end moonshine-tiny, which was not asked for",
        )

    def competitor_counts(self) -> tuple[int, ...] | None:
        """The numbers of --counts; None if it was not given."""
        return tuple(int(count) for count in self.counts.split(",")) if self.counts else None

    def chunk_sizes(self) -> list[int]:
        """The numbers of --chunks."""
        return [int(size) for size in self.chunks.split(",")] if self.chunks else []

    def check_chunks(self, model: ModelConfig, run: str) -> None:
        """UserError unless the model of a run can recognise with chunks of these sizes, or has no chunks at all."""
        if not model.has_chunks:
            return
        left = model.streaming.left_context
        for size in self.chunk_sizes():
            model.front_end.check_chunk(size, "--chunks")
            fits = left is None or left % size == 0
            require(fits, "--chunks", f"{size} does not divide the left context of {left} frames that {run} has")

    def further_seeds(self) -> list[int]:
        """The numbers of --seeds."""
        return [int(seed) for seed in self.seeds.split(",")] if self.seeds else []

    def runs(self, stage: int) -> bool:
        """Whether a stage is among those to run."""
        return self.stage <= stage <= self.stop_stage


def flag(name: str) -> str:
    """The flag of a field."""
    return f"--{name.replace('_', '-')}"
