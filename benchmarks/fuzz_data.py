"""What prepare.sh has made, and what it and training read besides, as targets of the fuzzer."""

import gzip
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import numpy as np
from fuzz_files import AUDIO_KINDS, audio_bytes, cut_json, lines_of, of_file
from fuzzing import Target
from lhotse import LilcomChunkyWriter
from small_systems import small_tokenizer

from transducer_gn.common.errors import UserError
from transducer_gn.common.stages import Stage, made_from
from transducer_gn.data import books
from transducer_gn.data.batches import collate_features
from transducer_gn.data.books import HeldOut, part_texts, read_book
from transducer_gn.data.common_voice import COLUMNS, read_clip, read_table
from transducer_gn.data.features import cuts_of_part, noise_recordings, noise_windows
from transducer_gn.data.index import DURATIONS, LINES, OFFSETS, ManifestIndex, write_index
from transducer_gn.data.prepared import WithFolder
from transducer_gn.data.text import Text
from transducer_gn.data.tokenizer import Tokenizer


def read_index(folder: Path, tokenizer: Tokenizer) -> None:
    """All that training wants of an index."""
    index = ManifestIndex(folder)
    for counted in folder.glob("tokens-*.npy"):
        counted.unlink()
    cuts = [index.cut(position) for position in range(min(len(index), 3))]
    assert all(cut.duration > 0 and tokenizer.encode(cut.supervisions[0].text) is not None for cut in cuts)
    assert len(index.tokens(tokenizer)) == len(index.tokens(tokenizer)) == len(index)
    assert index.durations.sum() >= 0 and index.fingerprint


def arrays(folder: Path) -> Target:
    """Arrays of an index, and numbers of tokens; the first byte says which."""
    folder.mkdir(parents=True)
    tokenizer = small_tokenizer()
    write_index([json.dumps(cut_json(name)).encode() for name in "abc"], folder)
    ManifestIndex(folder).tokens(tokenizer)
    paths = [folder / DURATIONS, folder / OFFSETS, folder / f"tokens-{tokenizer.fingerprint}.npy"]
    good = [path.read_bytes() for path in paths]

    def read(content: bytes) -> None:
        for path, whole in zip(paths, good, strict=True):
            path.write_bytes(whole)
        paths[content[0] % 3 if content else 0].write_bytes(content[1:])
        assert len(ManifestIndex(folder).tokens(tokenizer)) == 3
        read_index(folder, tokenizer)

    words = [b"'descr': '<f8'", b"'descr': '<i8'", b"'|O'", b"'shape': (3,)", b"(1000000000000000,)", b"True"]
    return Target(read, [bytes([number]) + whole for number, whole in enumerate(good)], words=words)


def index_lines(folder: Path) -> Target:
    """Lines of a manifest of which an index is made, or of an index that was made; their length says which."""
    folder.mkdir(parents=True)
    tokenizer = small_tokenizer()

    def read(content: bytes) -> None:
        lines = content.removesuffix(b"\n").split(b"\n")
        if len(content) % 2:
            write_index(lines, folder)
        else:
            write_index([json.dumps(cut_json("a")).encode()] * len(lines), folder)
            (folder / LINES).write_bytes(b"".join(line + b"\n" for line in lines))
            np.save(folder / OFFSETS, np.cumsum([0, *(len(line) + 1 for line in lines)], dtype=np.int64))
        read_index(folder, tokenizer)

    seeds = [lines_of(*map(cut_json, names)) for names in (["a"], ["a", "b"], ["bcd", "a"])]
    return Target(read, seeds, is_json=True, words=[b"\n", b'{"duration": 1.0}\n'])


def write_features(folder: Path) -> dict[str, object]:
    """A cut with features [5, 4], written to `features.lca`, which compress well."""
    folder.mkdir(parents=True)
    with LilcomChunkyWriter(folder / "features.lca") as writer:
        key = writer.write("a", np.sin(np.arange(20, dtype=np.float32)).reshape(5, 4))
    cut = cut_json("a")
    place = {"num_frames": 5, "num_features": 4, "frame_shift": 0.2, "storage_path": "features.lca", "storage_key": key}
    return cut | {"features": dict(cut["features"], **place)}  # type: ignore[call-overload]


def collate(folder: Path) -> None:
    """What training wants of the features of an index's first cut."""
    matrix, lengths = collate_features([ManifestIndex(folder, WithFolder(folder)).cut(0)], None)
    assert matrix.shape[1] == int(lengths[0]) and matrix.dim() == 3


def features(folder: Path) -> Target:
    """An archive of features."""
    cut, archive = write_features(folder), folder / "features.lca"
    write_index([json.dumps(cut).encode()], folder)
    return Target(of_file(archive, lambda: collate(folder)), [archive.read_bytes()])


def feature_places(folder: Path) -> Target:
    """A cut that says where its features are."""
    cut = write_features(folder)
    np.save(folder / "features.npy", np.zeros((5, 4), dtype=np.float32))

    def read(content: bytes) -> None:
        write_index([content.replace(b"\n", b" ")], folder)
        collate(folder)

    words = [b"features.npy", b"numpy_files", b"lilcom_files", b"memory_lilcom", b"memory_raw", b"0,1,1", b"kaldiio"]
    return Target(read, [json.dumps(cut).encode()], is_json=True, words=words)


def manifests(folder: Path) -> Target:
    """Recordings and supervisions, parted by an empty line; and the recordings as noise."""
    (folder / "manifests").mkdir(parents=True)
    (folder / "parts.json").write_text('{"dev": ["dev"]}')
    paths = [folder / "manifests" / f"{name}.jsonl.gz" for name in ("recordings_dev", "supervisions_dev")]
    noise = folder / "manifests" / "recordings_musan.jsonl.gz"
    cuts = [cut_json(name) for name in "ab"]
    seed = b"\n".join(
        [lines_of(*(cut["recording"] for cut in cuts)), lines_of(*(cut["supervisions"][0] for cut in cuts))]
    )  # type: ignore[index]

    def read(content: bytes) -> None:
        recordings, _, supervisions = content.partition(b"\n\n")
        for path, lines in zip([*paths, noise], (recordings, supervisions, recordings), strict=True):
            path.write_bytes(gzip.compress(lines, 1, mtime=0))
        assert all(window.duration > 0 for window in noise_windows(noise_recordings(folder)))
        assert list(part_texts(folder, "dev")) == [cut.supervisions[0].text for cut in cuts_of_part(folder, "dev")]

    return Target(read, [seed], is_json=True)


def common_voice(folder: Path) -> Target:
    """A table of Common Voice, and the clips that it names."""
    folder.mkdir(parents=True)

    def read() -> None:
        clips, problems = read_table(folder / "table.tsv", folder)
        assert all(map(str, problems))
        for clip in clips[:20]:
            assert re.fullmatch("[A-Z' ]+", clip.text)
            with suppress(ValueError):
                read_clip(clip.audio)

    heading = "\t".join([*COLUMNS, "up_votes"])
    seed = f"{heading}\nzoe\tclip.mp3\tIt\u2019s well-known.\t2\nadam\tother.mp3\tYes; \u201cno\u201d\t3\n"
    words = [b"\t", b"\t\t", b"\xe2\x80\x99", b"\xef\xbb\xbf", b"\0", b"..", b"/", b"/dev/stdin"]
    return Target(of_file(folder / "table.tsv", read), [seed.encode()], words=words)


def clips(folder: Path) -> Target:
    """Clips of Common Voice, of any format."""
    folder.mkdir(parents=True)

    def read() -> None:
        try:
            samples = read_clip(folder / "clip.mp3")
        except ValueError as error:
            raise UserError(str(error)) from error
        assert len(samples) and np.isfinite(samples).all()

    return Target(of_file(folder / "clip.mp3", read), [audio_bytes(*kind) for kind in AUDIO_KINDS])


BOOK = """*** START OF THE BOOK ***
It was the best of times; it was the worst of times. Mr. Jones [a note] said that he was in
the house, and \u201cthat it was _cold_.\u201d

And then the dog of the king came to the door: as he was told! Chapter 12
*** END OF THE BOOK"""


def books_of_text(folder: Path) -> Target:
    """A book; a short one counts as one here."""
    folder.mkdir(parents=True)
    kept_out = HeldOut(["THE DOG OF THE KING CAME TO THE CAR".split()])

    def read() -> None:
        with patch.object(books, "FEWEST_WORDS", 5):
            utterances, problem = read_book(folder / "book.txt", kept_out)
        assert all(re.fullmatch("[A-Z']+", word) for words in utterances for word in words)
        if problem:
            raise UserError(problem)

    words = [
        b"*** START OF",
        b"***",
        b"*** END OF",
        b"[",
        b"]",
        b"Mr. ",
        b"\n\n",
        b". ",
        b"\xe2\x80\x9d ",
        b"_",
        b" THE",
    ]
    return Target(of_file(folder / "book.txt", read), [BOOK.encode()], words=words)


def text(folder: Path) -> Target:
    """Text without speech."""
    folder.mkdir(parents=True)
    tokenizer = small_tokenizer()

    def read() -> None:
        drawn = Text(folder / "text.txt", tokenizer, longest=20).draw(30, seed=0)
        assert drawn.dim() == 2 and 0 < drawn.shape[1] <= 20

    seed = b"THE CAT SAT ON MAT\nTHE DOG BIT SEA\nCAT\n"
    return Target(of_file(folder / "text.txt", read), [seed], words=[b"\n" * 100, b"THE ", b"\n \n", b"\xe2\x96\x81"])


def stage_records(folder: Path) -> Target:
    """What a stage was made from."""
    folder.mkdir(parents=True)
    inputs = {"manifests": ["ab" * 32, None], "tick_power": -10, "speed_factors": [0.9, 1.1], "seed": 2**40}
    stage = Stage(folder / ".made.json", inputs)
    stage.finish()

    def read() -> None:
        # One of something else is none that counts, for which there is no sentence: the stage is done again.
        if not stage.is_done():
            raise UserError("it is to be done")
        assert made_from(stage.record, inputs)

    return Target(of_file(stage.record, read), [stage.record.read_bytes()], is_json=True)


TARGETS: dict[str, Callable[[Path], Target]] = {
    "arrays": arrays,
    "index-lines": index_lines,
    "features": features,
    "feature-places": feature_places,
    "manifests": manifests,
    "common-voice": common_voice,
    "clips": clips,
    "books": books_of_text,
    "text": text,
    "stage-records": stage_records,
}
