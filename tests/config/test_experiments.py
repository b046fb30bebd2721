"""Invariant: a file of experiments says which runs there are, in order, with the numbers of its schedule; a file on
top of another changes only what it names; and whatever is wrong ends in a sentence that names file, run and field.
"""

from pathlib import Path

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.config.experiments import read_experiments

FOLDER = Path(__file__).parents[2] / "conf" / "experiments"
SMALL = """
schedule: {epochs: 7, baseline_epochs: epochs, branch_epoch: 4, early_epoch: 2, counts: [3, 5]}
stages: {first: "the first, {epochs} epochs", second: the second}
runs:
  child-n{count}: {stage: second, role: challenger, parent: root, settings: {competitors.count: "{count}"}}
  root: {stage: first, role: baseline, epochs: baseline_epochs}
  early: {stage: second, parent: root, after: early_epoch, epochs: 6, settings: {normalisation.exact: true}}
"""


@pytest.fixture
def read(tmp_path):
    def written(text: str, name: str = "mine.yaml"):
        (tmp_path / name).write_text(text)
        return read_experiments(tmp_path / name)

    return written


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_all_files_can_be_read(path):
    assert {"local", "local-continued", "alpha-0.3"} <= {run.name for run in read_experiments(path).scheduled().runs}


def test_runs_are_in_order_of_stages_with_numbers_for_names(read):
    found = read(SMALL).scheduled(branch_epoch=3)
    assert [(run.name, run.parent, run.after, run.epochs) for run in found.runs] == [
        ("root", None, 3, 7),
        ("child-n3", "root", 3, 7),
        ("child-n5", "root", 3, 7),
        ("early", "root", 2, 6),
    ]
    assert [dict(run.settings) for run in found.runs[1:]] == [
        {"competitors.count": "3"},
        {"competitors.count": "5"},
        {"normalisation.exact": "true"},
    ]
    assert found.stages == {"first": "the first, 7 epochs", "second": "the second"}
    assert [run.name for run in read(SMALL).scheduled(counts=(9,)).runs] == ["root", "child-n9", "early"]


def test_names_of_the_schedule_may_name_each_other(read):
    text = SMALL.replace("baseline_epochs: epochs", "baseline_epochs: branch_epoch")
    assert read(text).scheduled(branch_epoch=2).runs[0].epochs == 2
    assert read(text).scheduled(baseline_epochs=5).runs[0].epochs == 5


def test_a_file_on_top_of_another_replaces_fields(read, tmp_path):
    (tmp_path / "settings.yaml").write_text("model:\n  vocab_size: 3\n")
    read(SMALL, "base.yaml")
    found = read(
        "base: base.yaml\nschedule: {epochs: 9}\nruns:\n  early: {settings: {normalisation.alpha: 0.5}}\n"
        "  new: {stage: first, config: [settings.yaml]}\n"
    )
    runs = {run.name: run for run in found.scheduled().runs}
    assert list(runs) == ["root", "new", "child-n3", "child-n5", "early"]
    assert runs["root"].epochs == 9 and dict(runs["early"].settings) == {"normalisation.alpha": "0.5"}
    assert runs["early"].after == 2 and runs["new"].config == (tmp_path / "settings.yaml",)


def test_roles_are_found_by_name_whatever_the_counts(read):
    found = read(SMALL)
    names = ["early", "child-n77", "root", "child-nx", "other"]
    assert found.in_role("challenger", names) == ["child-n77"]
    assert found.in_role("baseline", names) == ["root"] and found.in_role("lookahead", names) == []


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("stage: first,", "stage: third,", "run root: stage: must be one of first, second, not 'third'"),
        ("role: baseline", "role: hero", "run root: role: must be one of baseline, challenger, lookahead, not 'hero'"),
        ("{stage: first, role", "{role", "run root: stage is missing"),
        (
            "after: early_epoch",
            "after: late_epoch",
            "run early: after: must be a whole number or one of .*'late_epoch'",
        ),
        ("after: early_epoch", "after: 1.5", "run early: after: must be an epoch or a name of the schedule, not 1.5"),
        ("parent: root, after", "parent: toor, after", "run early: parent: there is no run 'toor' before this one"),
        ("epochs: 6", "epoch: 6", "run early: epoch: is no field of a run; there are stage, role"),
        ("normalisation.exact", "normalisation.exakt", "run early: settings: normalisation.exakt: is no setting"),
        ("exact: true", "exact: {a: 1}", "run early: settings: normalisation.exact: must be one value"),
        ("role: baseline", "config: [no.yaml]", "run root: config: there is no file .*no.yaml"),
        ("role: baseline", "alone: 1", "run root: alone: must be true or false, not 1"),
        ("branch_epoch: 4,", "", "schedule: branch_epoch is missing"),
        ("branch_epoch: 4", "branch_epoch: -4", "schedule: branch_epoch: must be a whole number, not -4"),
        ("branch_epoch: 4", "branch_epoch: early_epoch, wrong: 1", "schedule: wrong: is no number of a schedule"),
        ("baseline_epochs: epochs,", "baseline_epochs: baseline_epochs,", "schedule: baseline_epochs: must be a whole"),
        ("counts: [3, 5]", "counts: [3, x]", "schedule: counts: must be a list of whole numbers"),
        ("stages:", "stage:", "stage: is no section; there are base, schedule, stages, runs"),
        ("{epochs} epochs", "{epoch} epochs", "stages: first: 'epoch' is no name of the schedule"),
        ("runs:", "base: mine.yaml\nruns:", "stands on itself"),
        ("runs:", "base: none.yaml\nruns:", "there are no experiments .*none.yaml"),
        ("runs:", "runs: [", "cannot be read as YAML"),
        # Found by fuzzing, and by reading what fuzzing had not reached yet.
        ("runs:", "runs: " + "{" * 3000, "cannot be read as YAML"),
        ("runs:", "counts: " + "9" * 5000 + "\nruns:", "cannot be read as YAML"),
        ("runs:", "counts: 0x" + "f" * 5000 + "\nruns:", "a number is too large"),
        ("role: baseline", f"config: [{'A' * 3000}]", "run root: config: there is no file 'AAA"),
        ("second: the second", "second: [&a [1, 1], &b [*a, *a], [*b, *b]]", "second: must be a title, not a list"),
        ("{epochs} epochs", "{epochs.x} epochs", "'epochs.x' is no name of the schedule"),
        ("{epochs} epochs", "{epochs:>99999999999} epochs", "is no name of the schedule"),
        ("runs:", 'base: "a\\0b"\nruns:', "cannot be read as YAML"),
    ],
)
def test_what_is_wrong_is_named(read, tmp_path, old, new, named):
    assert old in SMALL
    with pytest.raises(UserError, match=named) as caught:
        read(SMALL.replace(old, new, 1))
    assert str(tmp_path) in str(caught.value) and "\n" not in str(caught.value)
