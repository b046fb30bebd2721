"""Run experiments, from data to report. Any call can be stopped; the same call goes on from there.

  egs/librispeech/ASR/run.sh --corpus librispeech --world-size 8
  egs/librispeech/ASR/run.sh --corpus mini --only local,local-continued,alpha-0.3 --jobs 2
  egs/librispeech/ASR/run.sh --corpus path/to/corpus --front-end moonshine-tiny --only local,local-continued,alpha-0.3
  egs/librispeech/ASR/run.sh --corpus mini --dry-run

Stages (--stage N, --stop-stage N; by default all)
   0  prepare       prepare.sh
   1  local         baseline, locally normalised
   2  continued     the baseline continued from where the others branch off, with their batches: the fair opponent
   3  alpha         branches to alpha 0.8, 0.6, 0.3, 0.1, 0
   4  early         a branch to alpha 0.3 from an earlier epoch
   5  ablations     branches to alpha 0.3 with other numbers N of competitors, and without the regulariser
   6  lookahead     baseline that sees whole utterances
   7  finite-state  vocabulary 32: local, local continued, and global with the exact normaliser
   8  decode        word error rates of all runs at their best epoch
   9  latency       emission times of all runs, against the baseline
  10  report        tables, figures, one HTML page

Stages 1 to 7 and their runs stand in conf/experiments/*.yaml, and a new run is a few lines there; where a file has more
stages or fewer, the last three are those after them. Runs are EXP-ROOT/NAME: local, local-continued, alpha-0.8,
alpha-0.6, alpha-0.3, alpha-0.1, alpha-0, alpha-0.3-early, alpha-0.3-nN for each N of --counts, alpha-0.3-unregularised,
lookahead, lookahead-continued (where the baseline ends at the branch), finite-state-local, finite-state-continued,
finite-state-global.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transducer_gn.commands.jobs import Job, JobRunner, Launcher, Printer, Stopped, threads_for
from transducer_gn.commands.recipe_files import REPOSITORY, experiments_file, system_on_moonshine
from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.errors import UserError
from transducer_gn.config.experiment import config_parser, read_config
from transducer_gn.config.experiments import Experiments, RunConfig, read_experiments
from transducer_gn.config.recipe import RecipeConfig

FLAGS_OF_OTHERS = ("--prepare-flags", "--train-flags")


def parser() -> CommandParser:
    """Flags of the runner."""
    made = command_parser(__doc__, RecipeConfig)
    made.add_argument("--dry_run", action="store_true", help="only print the commands")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Run what the flags say; exits as the signal that stopped it asks for."""
    flags = parser().parse_args(with_values_joined(sys.argv[1:] if arguments is None else arguments))
    recipe = Recipe.of(settings_from(RecipeConfig, flags))
    recipe.check()
    if flags.dry_run:
        recipe.run(Printer(), dry_run=True)
        return
    runner = JobRunner(recipe.settings.jobs)
    try:
        with runner.listening():
            recipe.run(runner, dry_run=False)
    except Stopped as stopped:
        sys.exit(stopped.code)


def with_values_joined(arguments: Sequence[str]) -> list[str]:
    """Flags for other programs become one argument with what follows, which may begin with dashes, too."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1].replace("_", "-") in FLAGS_OF_OTHERS:
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


@dataclass(frozen=True)
class Recipe:
    """The commands of all stages.

    Attributes:
        settings: what the user asked for
        experiments: the runs, with the schedule that the user asked for
        conf: file of the system's settings
        global_conf: file of what branches change
        exp_root: folder of the runs' folders
        data_dir: what prepare.sh makes
    """

    settings: RecipeConfig
    experiments: Experiments
    conf: Path
    global_conf: Path
    exp_root: Path
    data_dir: Path

    @classmethod
    def of(cls, settings: RecipeConfig) -> "Recipe":
        """With the files that the corpus's name leads to; corpora without settings of their own have the paper's."""
        name = Path(settings.corpus).name
        system = name if (REPOSITORY / "conf" / f"{name}.yaml").is_file() else "paper"
        experiments_name = name
        if settings.front_end is not None:
            system = system_on_moonshine(settings)
            experiments_name = system.replace("moonshine", "recorded")
            name = f"{name}-{settings.front_end}"
        branches = "librispeech" if system == "paper" else system
        experiments = read_experiments(experiments_file(settings.experiments, experiments_name, system)).scheduled(
            epochs=settings.epochs,
            baseline_epochs=settings.baseline_epochs,
            branch_epoch=settings.branch_epoch,
            early_epoch=settings.early_epoch,
            counts=settings.competitor_counts(),
        )
        return cls(
            settings,
            experiments,
            Path(settings.conf or REPOSITORY / "conf" / f"{system}.yaml"),
            Path(settings.global_conf or REPOSITORY / "conf" / f"{branches}-global.yaml"),
            Path(settings.exp_root or REPOSITORY / "exp" / name),
            Path(settings.data_dir or REPOSITORY / "data" / name),
        )

    def check(self) -> None:
        """UserError where a command would fail for what is known already."""
        for file in (self.conf, self.global_conf):
            if not file.is_file():
                raise UserError(f"there are no settings {file}; name some with --conf and --global-conf")
        schedule, runs = self.experiments.schedule, {run.name: run for run in self.experiments.runs}
        if self.number(schedule.branch_epoch) > self.number(schedule.baseline_epochs):
            raise UserError(f"--branch-epoch must be at most --baseline-epochs, {schedule.baseline_epochs}")
        self.check_chunks()
        for name in self.only():
            if name not in runs:
                raise UserError(f"--only: there is no run {name!r}, only {', '.join(runs)}")
        numbers = {stage: number for number, stage in enumerate(self.experiments.stages, start=1)}
        for run in filter(lambda run: self.settings.runs(numbers[run.stage]), self.wanted()):
            parent = runs.get(run.parent) if run.parent is not None else None
            if parent is not None and self.number(run.after) > self.number(parent.epochs):
                raise UserError(
                    f"{run.name} branches off after epoch {run.after} of {parent.name}, which has {parent.epochs}"
                )

    def check_chunks(self) -> None:
        """UserError if a run cannot recognise with the sizes of --chunks, by what is known of its settings here."""
        # What flags for training make of them is not; over_chunks.py tries all sizes before the first takes its time.
        unknown = any(word.startswith(("--model", "--config")) for word in self.settings.train_flags.split())
        for run in self.chosen() if self.settings.chunks and not unknown else []:
            config, _ = read_config(config_parser(None), self.settings_flags(run))
            self.settings.check_chunks(config.model, run.name)

    def number(self, value: int | str) -> int:
        """A number of the schedule, or of a run, which may be given by the name of one of the schedule."""
        return self.experiments.schedule.number(value, str(self.experiments.path))

    def only(self) -> list[str]:
        """Names of the runs that the user chose; empty for all."""
        return [name for name in (self.settings.only or "").split(",") if name]

    def chosen(self) -> list[RunConfig]:
        """The runs that the user chose, in order."""
        return [run for run in self.experiments.runs if not self.only() or run.name in self.only()]

    def wanted(self) -> list[RunConfig]:
        """Those of them to train."""
        runs = {run.name: run for run in self.experiments.runs}

        def goes_on(run: RunConfig) -> bool:
            return run.parent is not None and self.number(runs[run.parent].epochs) < self.number(run.epochs)

        return [run for run in self.chosen() if not run.only_if_parent_ends or goes_on(run)]

    def trained(self, dry_run: bool) -> list[str]:
        """Names of the runs to evaluate: all that have a best epoch by now, or will have."""
        if dry_run:
            return [run.name for run in self.wanted()]
        name = "epoch-{}.pt" if self.settings.avg else "best.json"
        return [run.name for run in self.chosen() if (self.exp_root / run.name / name.format(run.epochs)).is_file()]

    def run(self, launcher: Launcher, dry_run: bool) -> None:
        """All stages that are wanted, one after another; trainings of different stages may run side by side.

        Other seeds follow before the report, which compares them.
        """
        settings, stages = self.settings, self.experiments.stages
        if settings.runs(0):
            log(0, f"data in {self.data_dir}")
            launcher.start(self.prepare_job())
            launcher.finish()
        for number, (stage, title) in enumerate(stages.items(), start=1):
            if settings.runs(number):
                log(number, title)
                for run in self.wanted():
                    if run.stage == stage:
                        self.train(run, launcher)
        launcher.finish()
        self.evaluate(launcher, self.trained(dry_run))
        for other in self.other_seeds():
            other.run(launcher, dry_run)
        if settings.runs(number := len(stages) + 3):
            log(number, f"report in {self.exp_root / 'report'}")
            launcher.start(self.report_job())
            launcher.finish()

    def evaluate(self, launcher: Launcher, trained: list[str]) -> None:
        """The stages that decode and measure runs."""
        settings, last = self.settings, len(self.experiments.stages)
        programs = [["compute_latency"]] + [["over_epochs"]] * settings.every_epoch
        programs += [["over_chunks", "--chunks", f"[{settings.chunks}]"]] if settings.chunks else []
        timed = [self.timed_job(name, *program) for program in programs for name in trained]
        for number, title, jobs in (
            (last + 1, f"decoding with beam {settings.beam}", [self.decode_job(name) for name in trained]),
            (last + 2, "emission times", timed),
        ):
            if settings.runs(number):
                log(number, title)
                for job in jobs:
                    launcher.start(job)
                launcher.finish()

    def other_seeds(self) -> "list[Recipe]":
        """The same runs from other seeds, up to what the report needs of them: no curves of errors against delay."""
        settings, last = self.settings, len(self.experiments.stages)
        return [
            Recipe.of(
                replace(
                    settings,
                    stage=max(settings.stage, 1),
                    stop_stage=min(settings.stop_stage, last + 2),
                    exp_root=f"{self.exp_root}-seed{seed}",
                    train_flags=f"{settings.train_flags} --training.seed {seed} --data.batches.seed {seed}",
                    seeds=None,
                    chunks=None,
                )
            )
            for seed in settings.further_seeds()
        ]

    def train(self, run: RunConfig, launcher: Launcher) -> None:
        """Train a run unless that is done."""
        if (self.exp_root / run.name / f"epoch-{run.epochs}.pt").is_file():
            print(f"{run.name}: all {run.epochs} epochs are done", flush=True)
        else:
            launcher.start(self.train_job(run))

    def prepare_job(self) -> Job:
        """The command of stage 0."""
        settings = self.settings
        flags = ["--corpus", settings.corpus, "--data-dir", str(self.data_dir), "--dl-dir", settings.dl_dir]
        system, _ = read_config(config_parser(None), ["--config", str(self.conf)])
        chosen = {"--train": settings.train, "--dev": settings.dev, "--test": settings.test}
        if settings.front_end is not None:
            chosen |= {
                "--front-end": settings.front_end,
                "--front-end-file": settings.front_end_file,
                "--conf": str(self.conf),
                "--vocab-sizes": str(system.model.vocab_size),
            }
        flags += [word for flag, value in chosen.items() if value is not None for word in (flag, value)]
        own = settings.prepare_flags.split()
        if system.data.batches.noise.enabled and "--musan" not in own:
            own.append("--musan")
        command = (str(REPOSITORY / "prepare.sh"), *flags, *own)
        return Job("prepare", command, has_children=True)

    def train_job(self, run: RunConfig) -> Job:
        """The command of a training."""
        settings = self.settings
        flags = self.settings_flags(run)
        if run.parent:
            flags += ["--branch-from", str(self.exp_root / run.parent / f"epoch-{run.after}.pt")]
        # Whatever else is removed, the epochs that other runs start from are not.
        if starts := sorted({self.number(other.after) for other in self.experiments.runs if other.parent == run.name}):
            flags += ["--training.keep_always", f"[{','.join(map(str, starts))}]"]
        flags += ["--data.folder", str(self.data_dir), "--exp-dir", str(self.exp_root / run.name)]
        flags += ["--training.epochs", str(run.epochs), "--world-size", str(settings.world_size)]
        # One that has the machine to itself shares the cores among its own processes only.
        threads = threads_for(settings.jobs, settings.world_size if run.alone else settings.jobs)
        command = script("train", *flags, *settings.train_flags.split())
        return Job(run.name, command, run.parent, run.alone, threads)

    def settings_flags(self, run: RunConfig) -> list[str]:
        """Flags of a training that say what is trained: files of settings, and what the run has of its own."""
        files = [self.conf, *([self.global_conf] if run.parent else []), *run.config]
        flags = [word for file in files for word in ("--config", str(file))]
        return flags + [word for name, value in run.settings.items() for word in (f"--{name}", value)]

    def decode_job(self, name: str) -> Job:
        """The command that decodes a run."""
        settings = self.settings
        sets = ["--sets", f"[{settings.sets}]"] if settings.sets else []
        return self.evaluation_job(name, "decode", *sets)

    def timed_job(self, name: str, program: str, *flags: str) -> Job:
        """The command that measures when a run's words come out: as it is, over epochs, or over sizes of chunks."""
        return self.evaluation_job(name, program, *flags, *self.latency_flags())

    def latency_flags(self) -> list[str]:
        """What emission times are measured of."""
        settings = self.settings
        flags = ["--display", "true" if settings.display else "false"]
        if sets := settings.latency_sets or settings.sets:
            flags += ["--sets", f"[{sets}]"]
        if settings.latency_utterances is not None:
            flags += ["--utterances", str(settings.latency_utterances)]
        return flags

    def evaluation_job(self, name: str, program: str, *flags: str) -> Job:
        """A command that uses a trained run."""
        own = [
            "--exp-dir",
            str(self.exp_root / name),
            "--data-dir",
            str(self.data_dir),
            "--beam",
            str(self.settings.beam),
        ]
        if (self.settings.avg or self.settings.last) and program != "over_epochs":
            last = next(run.epochs for run in self.experiments.runs if run.name == name)
            own += ["--epoch", str(last), "--avg", str(self.settings.avg)]
        return Job(name, script(program, *own, *flags), threads=threads_for(self.settings.jobs, self.settings.jobs))

    def report_job(self) -> Job:
        """The command that writes the report."""
        settings = self.settings
        flags = ["--exp-root", str(self.exp_root), "--data-dir", str(self.data_dir)]
        flags += ["--experiments", str(self.experiments.path)]
        for flag, value in (("--baseline", settings.baseline), ("--challenger", settings.challenger)):
            flags += [flag, value] if value else []
        if others := [str(other.exp_root) for other in self.other_seeds()]:
            flags += ["--seeds", f"[{','.join(others)}]"]
        return Job("report", script("report", *flags), threads=threads_for(settings.jobs, settings.jobs))


def script(name: str, *flags: str) -> tuple[str, ...]:
    """The command line of one of the recipe's scripts."""
    return ("python", str(REPOSITORY / "egs" / "librispeech" / "ASR" / f"{name}.py"), *flags)


def log(stage: int, text: str) -> None:
    """Say what begins."""
    print(f"{time.strftime('%H:%M:%S')} stage {stage}: {text}", flush=True)
