"""Invariant: a line of a manifest that nothing can be made of is named; noise need not say anything."""

import pytest

from transducer_gn.common.errors import UserError
from transducer_gn.data.layout import part_manifest
from transducer_gn.data.manifest_files import write_json_lines
from transducer_gn.data.prepared import PreparedData

SOURCE = {"type": "file", "channels": [0], "source": "a.flac"}
RECORDING = {"id": "a", "sources": [SOURCE], "sampling_rate": 16000, "num_samples": 16000, "duration": 1.0}
CUT = {"id": "a", "start": 0.0, "duration": 1.0, "channel": 0, "recording": RECORDING, "type": "MonoCut"}
SAID = {"id": "a", "recording_id": "a", "start": 0.0, "duration": 1.0}


def data_of(folder, part, supervisions):
    """A folder whose second cut is said to hold this."""
    path = part_manifest(folder, part)
    path.parent.mkdir(parents=True)
    good = CUT | {"supervisions": [SAID | {"text": "A WORD"}]}
    write_json_lines(path, [good, CUT | {"supervisions": supervisions}])
    return PreparedData(folder)


@pytest.mark.parametrize("supervisions", [[], [SAID], [SAID | {"text": 5}]], ids=["none", "without text", "a number"])
def test_a_cut_must_say_what_is_said(tmp_path, supervisions):
    data = data_of(tmp_path, "dev", supervisions)
    with pytest.raises(UserError, match="line 2 is no cut .*run prepare.sh again"):
        list(data.cuts("dev"))


def test_noise_says_nothing(tmp_path):
    assert len(list(data_of(tmp_path, "musan", []).noise_cuts())) == 2
