"""Sentence pieces: text to token ids and back. Id 0 is blank; all ids are as sentencepiece gives them."""

import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from transducer_gn.common.errors import UserError
from transducer_gn.common.files import replace_when_done, write_text
from transducer_gn.common.units import BLANK

BLANK_PIECE = "<blk>"
START_END = 1
START_END_PIECE = "<sos/eos>"
UNKNOWN = 2
MODEL_NAME = "tokenizer.model"


class Tokenizer:
    """A trained sentence piece model. Pickles, so that it can go to other processes."""

    def __init__(self, model: bytes) -> None:
        self._model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        if self._processor.id_to_piece(BLANK) != BLANK_PIECE:
            raise UserError(f"this token model has no {BLANK_PIECE} at id {BLANK}; train one with prepare.sh")

    @classmethod
    def load(cls, path: Path | str) -> "Tokenizer":
        """Read a model file, or the one in a folder that stage 4 of prepare.sh made."""
        path = Path(path)
        path = path / MODEL_NAME if path.is_dir() else path
        if not path.is_file():
            raise UserError(f"there is no token model {path}; run prepare.sh with this vocabulary size first")
        try:
            return cls(path.read_bytes())
        except RuntimeError:
            raise UserError(f"{path} is not a sentencepiece model; delete it and run prepare.sh again") from None

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes]]:
        return type(self), (self._model,)

    @property
    def model(self) -> bytes:
        """The serialised model, as a checkpoint may hold it."""
        return self._model

    @property
    def fingerprint(self) -> str:
        """A checksum by which to tell models apart."""
        return hashlib.sha256(self._model).hexdigest()[:16]

    @property
    def vocab_size(self) -> int:
        """Number of ids, blank and the other special pieces included."""
        return self._processor.get_piece_size()

    @property
    def pieces(self) -> list[str]:
        """The piece of each id."""
        return [self._processor.id_to_piece(index) for index in range(self.vocab_size)]

    @property
    def entries(self) -> list[tuple[str, float]]:
        """The piece of each id with its score: all that texts and ids depend on."""
        return [(piece, self._processor.get_score(index)) for index, piece in enumerate(self.pieces)]

    def encode(self, text: str) -> list[int]:
        """Return the token ids of `text`; unknown characters become id 2."""
        return self._processor.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`. Blank and the start symbol stand for no text and are left out."""
        return self._processor.decode([int(index) for index in ids if index > START_END])


def train_tokenizer(lines: Iterable[str], vocab_size: int, model_type: str = "unigram") -> Tokenizer:
    """Train a model on lines of text, with icefall's settings; `model_type` is "unigram" or "bpe".

    One thread, since the sums of several come out in a different order each time.
    """
    if model_type not in ("unigram", "bpe"):
        raise UserError(f"--token-model must be unigram or bpe, not {model_type!r}")
    buffer = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=buffer,
            vocab_size=vocab_size,
            model_type=model_type,
            character_coverage=1.0,
            input_sentence_size=100_000_000,
            user_defined_symbols=[BLANK_PIECE, START_END_PIECE],
            unk_id=UNKNOWN,
            bos_id=-1,
            eos_id=-1,
            num_threads=1,
            minloglevel=2,
        )
    except (RuntimeError, ValueError) as error:
        raise UserError(vocabulary_advice(vocab_size, str(error))) from None
    return Tokenizer(buffer.getvalue())


def vocabulary_advice(vocab_size: int, message: str) -> str:
    """Turn sentencepiece's complaint into what to do."""
    if found := re.search(r"value <= (\d+)", message):
        most = found[1]
        return f"--vocab-sizes: the text supports at most {most} pieces, not {vocab_size}; choose {most} or fewer"
    if found := re.search(r"required_chars.*?(\d+) vs (\d+)", message, re.DOTALL):
        return f"--vocab-sizes: {vocab_size} pieces cannot hold all characters of the text; choose {found[2]} or more"
    return f"--vocab-sizes: sentencepiece could not train {vocab_size} pieces: {message.strip().splitlines()[-1]}"


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write `tokens.txt` (piece and id per line), then the model."""
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "tokens.txt", "".join(f"{piece} {index}\n" for index, piece in enumerate(tokenizer.pieces)))
    with replace_when_done(folder / MODEL_NAME) as sibling:
        sibling.write_bytes(tokenizer.model)
