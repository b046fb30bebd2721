"""Invariant: stored and fresh features are kaldi-native-fbank's to 1e-3, whatever the number of jobs, and their cuts
say truly what they are features of.
"""

import kaldi_native_fbank
import numpy as np
import pytest
import soundfile
from lhotse import MonoCut, Recording, SupervisionSegment

from transducer_gn.data.features import (
    StorageConfig,
    change_speed,
    cuts_of_part,
    fbank,
    noise_windows,
    store_features,
)
from transducer_gn.data.manifest_files import read_json_lines
from transducer_gn.data.prepared import PreparedData


def kaldi_fbank(samples: np.ndarray) -> np.ndarray:
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = False
    options.mel_opts.num_bins = 80
    options.mel_opts.high_freq = -400
    computer = kaldi_native_fbank.OnlineFbank(options)
    computer.accept_waveform(16000, samples.tolist())
    computer.input_finished()
    return np.stack([computer.get_frame(index) for index in range(computer.num_frames_ready)])


def test_stored_and_fresh_features_agree_with_kaldi_native_fbank(prepared):
    cuts = list(PreparedData(prepared).cuts("dev-mini"))
    for cut in cuts[:8]:
        samples, _ = soundfile.read(cut.recording.sources[0].source, dtype="float32")
        expected = kaldi_fbank(samples)
        assert np.abs(cut.compute_features(fbank()) - expected).max() < 1e-3
        assert np.abs(cut.load_features() - expected).max() < 1e-3


def test_features_do_not_depend_on_the_number_of_jobs(prepared, tmp_path):
    (tmp_path / "corpus").symlink_to(prepared / "corpus")
    cuts = cuts_of_part(prepared, "dev-mini")
    for jobs in (1, 2):
        store_features(cuts, f"jobs{jobs}", {}, tmp_path, StorageConfig(), jobs)
    archives = [(tmp_path / "fbank" / f"jobs{jobs}" / "00000.lca").read_bytes() for jobs in (1, 2)]
    assert archives[0] == archives[1]


def test_features_of_other_inputs_are_made_anew(prepared, tmp_path):
    (tmp_path / "corpus").symlink_to(prepared / "corpus")
    cuts = cuts_of_part(prepared, "dev-mini")
    store_features(cuts, "part", {"manifest": "one"}, tmp_path, StorageConfig(), 1)
    store_features(cuts[:3], "part", {"manifest": "two"}, tmp_path, StorageConfig(), 1)
    assert len(list(read_json_lines(tmp_path / "fbank" / "cuts_part.jsonl.gz"))) == 3


def test_a_moved_folder_still_finds_its_files(prepared, tmp_path):
    (tmp_path / "moved").symlink_to(prepared)
    cut = next(iter(PreparedData(tmp_path / "moved").cuts("dev-mini")))
    assert cut.load_features().shape == (cut.num_frames, 80)
    assert cut.load_audio().shape == (1, cut.recording.num_samples)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_change_of_speed_moves_all_times_along(prepared, factor):
    cuts = PreparedData(prepared).cuts("train-mini")
    cut = next(cut for cut in cuts if cut.supervisions[0].custom["kind"] == "ambiguous").drop_features()
    changed = change_speed(cut, factor)
    assert changed.id == f"{cut.id}_sp{factor}"
    assert changed.duration == pytest.approx(cut.duration / factor, abs=1e-3)
    before, after = cut.supervisions[0], changed.supervisions[0]
    for name in ("blend", "settling"):
        assert after.custom[name] == pytest.approx([time / factor for time in before.custom[name]], abs=1e-3)
    assert after.alignment["word"][-1].end == pytest.approx(before.alignment["word"][-1].end / factor, abs=1e-3)
    assert changed.load_audio().shape[1] == pytest.approx(cut.recording.num_samples / factor, abs=2)


def test_noise_is_cut_into_windows_without_short_rests():
    def recording(seconds):
        return Recording("noise", [], 16000, round(seconds * 16000), seconds)

    assert [(w.start, w.duration) for w in noise_windows([recording(24.0)])] == [(0, 10), (10, 10)]
    assert [(w.start, w.duration) for w in noise_windows([recording(26.0)])] == [(0, 10), (10, 10), (20, 6)]
    assert noise_windows([recording(5.0)]) == []


def test_speed_of_a_cut_without_custom_fields():
    recording = Recording("r", [], 16000, 16000, 1.0)
    supervision = SupervisionSegment("r", "r", 0.0, 1.0, text="A")
    cut = change_speed(MonoCut("r", 0.0, 1.0, 0, [supervision], recording=recording), 1.1)
    assert cut.supervisions[0].custom is None
