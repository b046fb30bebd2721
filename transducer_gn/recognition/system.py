"""A trained system in use: load it, transcribe recordings, follow streams.

A `System` is made from a checkpoint by `load` (a file, or the best epoch of a folder), or around a model that lives
already, as validation does during training.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from transducer_gn.common.errors import UserError, require
from transducer_gn.common.framing import SILENCE
from transducer_gn.common.json_files import read_json
from transducer_gn.common.run_files import BEST, BestEpoch
from transducer_gn.common.units import SAMPLING_RATE
from transducer_gn.config import (
    EVERYDAY,
    SHOW_ALL,
    Config,
    DisplayConfig,
    ModelConfig,
    RecognitionConfig,
    SystemConfig,
)
from transducer_gn.data.tokenizer import Tokenizer
from transducer_gn.model.chunk import FULL_CONTEXT, Chunk, evaluation_chunk
from transducer_gn.model.encoder_stream import StreamingEncoder
from transducer_gn.model.front_end import FrontEnd
from transducer_gn.model.transducer import Transducer, build_model
from transducer_gn.recognition.audio import check_samples, read_pieces
from transducer_gn.recognition.averaging import average_between
from transducer_gn.recognition.beam_text import BeamText
from transducer_gn.recognition.checkpoint import (
    Checkpoint,
    Progress,
    epoch_path,
    inherited_epoch_path,
    load_checkpoint,
    step_path,
)
from transducer_gn.recognition.devices import chosen_device
from transducer_gn.recognition.front_end import front_end_of
from transducer_gn.recognition.stream import LiveStream, StreamingRecogniser, advance_texts
from transducer_gn.recognition.transcript import Transcript
from transducer_gn.search.beam import BeamSearch

BEST_EPOCH = SystemConfig()

# Samples of a recording that are recognised at a time, so that memory does not grow with it.
PIECE = 10 * SAMPLING_RATE


@dataclass(frozen=True)
class System:
    """A model that recognises.

    Attributes:
        name: of the parameters, such as "epoch-30-avg-5"
        model: in evaluation mode
        config: all settings that it was trained with
        tokenizer: its token model
        alpha: interpolation weight that it was trained with at this point, or that was asked for
    """

    name: str
    model: Transducer
    config: Config
    tokenizer: Tokenizer
    alpha: float

    def transcribe(
        self,
        audio: str | os.PathLike[str] | Tensor | np.ndarray,
        settings: RecognitionConfig = EVERYDAY,
        sampling_rate: int = SAMPLING_RATE,
    ) -> Transcript:
        """Recognise a recording; gives its text and its words with times. UserError says what is wrong with audio.

        Args:
            audio: a file (any format that libsndfile reads), or samples [n]; mono, of the system's sampling rate
            settings: how to recognise. The text is that of a stream with the same settings; with `lookahead`, or of a
                system that has no chunks, every frame sees the whole recording
            sampling_rate: of samples; a file says its own
        """
        if isinstance(audio, str | os.PathLike):
            pieces = read_pieces(Path(audio), SAMPLING_RATE, PIECE)
        else:
            pieces = check_samples(audio, sampling_rate, SAMPLING_RATE).split(PIECE)
        if self.chunk(settings).size is None:
            return self._transcribe_whole(pieces, settings)
        stream = self.stream(settings)
        for piece in pieces:
            stream.accept(piece)
        return stream.finish()

    def stream(self, settings: RecognitionConfig = EVERYDAY, display: DisplayConfig = SHOW_ALL) -> LiveStream:
        """A new stream: audio in pieces of any size, text as it becomes known. To share steps, see `recogniser`."""
        _check_method(settings)
        return LiveStream(self.recogniser(settings, display))

    def recogniser(
        self, settings: RecognitionConfig = EVERYDAY, display: DisplayConfig = SHOW_ALL
    ) -> StreamingRecogniser:
        """Recognises many streams together by beam search; `display` says what to show of what may still change."""
        encoder = StreamingEncoder(self.model.encoder, self.chunk(settings))
        search, tail = self._search(settings), self.tail(settings)
        return StreamingRecogniser(self.front_end, encoder, search, self.tokenizer, tail, display)

    @property
    def front_end(self) -> FrontEnd:
        """What makes its feature vectors."""
        return front_end_of(self.model)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.model.parameters()).device

    @property
    def fingerprint(self) -> str:
        """A digest of the parameters and alpha, by which results of other parameters are told apart."""
        return fingerprint(self.model.state_dict(), self.alpha)

    def chunk(self, settings: RecognitionConfig) -> Chunk:
        """What a frame sees."""
        own = evaluation_chunk(self.config.model.streaming)
        if settings.streaming == "lookahead":
            return FULL_CONTEXT
        size = settings.chunk if settings.chunk is not None else own.size
        left = settings.left_context if settings.left_context is not None else own.left
        require(
            size is None or self.config.model.encoder.causal, "--chunk", "this system looks ahead and has no chunks"
        )
        self.config.model.front_end.check_chunk(size, "--chunk")
        return FULL_CONTEXT if size is None else Chunk(size, left)

    def tokens_per_frame(self, settings: RecognitionConfig) -> int:
        """Most tokens at one frame."""
        return settings.max_tokens_per_frame or self.config.searched_tokens_per_frame()

    def tail(self, settings: RecognitionConfig) -> Tensor:
        """[n, F] feature frames of silence that follow an utterance."""
        own = self.config.model.streaming.tail_padding
        count = own if settings.tail_padding is None else settings.tail_padding
        require(
            count == 0 or self.model.front_end is None, "--tail-padding", "only filter banks have frames of silence"
        )
        return torch.full((count, self.front_end.framing.feature_dim), SILENCE, device=self.device)

    def describe(self, settings: RecognitionConfig) -> str:
        """A name for the files of what it recognises."""
        chunk = self.chunk(settings)
        how = "lookahead" if chunk.size is None else f"streaming-chunk-size-{chunk.size}-left-context-{chunk.left}"
        kind = "chunk-by-chunk-" if settings.streaming == "chunks" else ""
        search = f"beam-{settings.beam}" if settings.method == "beam" else "greedy"
        tail = f"-tail-{count}" if (count := len(self.tail(settings))) else ""
        return f"{self.name}-{kind}{how}-{search}{tail}"

    def _search(self, settings: RecognitionConfig) -> BeamSearch:
        return BeamSearch(self.model, settings.beam, self.alpha, self.tokens_per_frame(settings))

    @torch.no_grad()
    def _transcribe_whole(self, pieces: Iterable[Tensor], settings: RecognitionConfig) -> Transcript:
        """Recognise with a model whose frames see the whole recording, given its samples in pieces [n]."""
        _check_method(settings)
        samples = torch.cat(list(pieces))
        require(len(samples) > 0, "audio", "there is none")
        features = torch.cat([self.front_end.compute(samples).to(self.device), self.tail(settings)])
        search = self._search(settings)
        text = BeamText(search.start(1)[0], self.tokenizer, self.model.encoder.framing)
        lengths = torch.tensor([len(features)])
        frames, counts = self.model.encoder(features[None], lengths, FULL_CONTEXT)
        advance_texts(search, [text], [frames[0, : int(counts[0])]])
        return text.transcript(final=True)


def _check_method(settings: RecognitionConfig) -> None:
    require(settings.method == "beam", "method", "greedy search gives no times of words; use beam search")


def load(path: str | Path, device: str | torch.device = "cpu", choice: SystemConfig = BEST_EPOCH) -> System:
    """Load a trained system; UserError says what is missing.

    Args:
        path: a checkpoint that training wrote, or an experiment folder, of which the best epoch is taken
        device: where to compute, such as "cpu" or "cuda"
        choice: another epoch of the folder, an average over epochs, or another alpha
    """
    path, device = Path(path), usable_device(device)
    if path.is_dir():
        return load_system(path, choice, device)
    only_alpha = choice == SystemConfig(alpha=choice.alpha)
    require(only_alpha, str(path), "this file is one epoch; give its folder to choose others or an average")
    return load_checkpoint_system(path, alpha=choice.alpha, device=device)


def usable_device(name: str | torch.device) -> torch.device:
    """A device by its name; UserError if this machine has none such."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device {name}: this machine cannot compute there; use cpu") from error
    return device


def load_system(folder: Path, choice: SystemConfig = BEST_EPOCH, device: torch.device | None = None) -> System:
    """Load the chosen parameters of an experiment folder; UserError if they are not there."""
    name, content = read_parameters(folder, choice)
    return build_system(name, content, folder, choice.alpha, device)


def load_checkpoint_system(
    path: Path, average: bool = False, alpha: float | None = None, device: torch.device | None = None
) -> System:
    """Load a checkpoint by its file.

    Args:
        path: the file
        average: take the running average of the parameters instead of the last ones
        alpha: interpolation weight to use; None for the one that training had arrived at
        device: None for the GPU if there is one
    """
    checkpoint = load_checkpoint(path)
    if average:
        checkpoint = replace(checkpoint, model=checkpoint.model | average_between(None, checkpoint.average))
    return build_system(path.stem, checkpoint, path.parent, alpha, device)


def build_system(
    name: str, checkpoint: Checkpoint, folder: Path, alpha: float | None, device: torch.device | None = None
) -> System:
    """The system that a checkpoint's content describes; on the GPU if there is one, unless told where."""
    config = checkpoint.config
    alpha = alpha if alpha is not None else trained_alpha(config, checkpoint.progress, folder)
    try:
        model = model_with(config.model, checkpoint.model)
        tokenizer = Tokenizer(checkpoint.tokenizer)
        require(tokenizer.vocab_size >= config.model.vocab_size, "the token model", "has fewer pieces than the model")
    except (RuntimeError, ValueError, UserError) as error:
        raise UserError(f"{folder / name} does not hold the system that its settings describe: {error}") from error
    model.eval().requires_grad_(False)
    return System(name, model.to(device or chosen_device()), config, tokenizer, alpha)


def model_with(config: ModelConfig, parameters: Mapping[str, Tensor]) -> Transducer:
    """The model that `config` describes, with these parameters; ValueError or RuntimeError unless they fit.

    Nothing is made that is larger than they are, whatever the settings say.
    """
    if config.encoder.layers + config.predictor.layers > len(parameters):
        raise ValueError(f"there are {len(parameters)} tensors, fewer than layers")
    with torch.device("meta"):
        wanted = build_model(config).state_dict()
    shapes = {name: tensor.shape for name, tensor in parameters.items()}
    expected = {name: tensor.shape for name, tensor in wanted.items()}
    different = [name for name in expected.keys() | shapes.keys() if expected.get(name) != shapes.get(name)]
    if different:
        raise ValueError(f"the parameters of {min(different)} are others")
    model = build_model(config)
    model.load_state_dict(parameters)
    return model


def read_parameters(folder: Path, choice: SystemConfig) -> tuple[str, Checkpoint]:
    """A name, and the checkpoint with its parameters replaced by the average if one was asked for."""
    if not folder.is_dir():
        raise UserError(f"there is no experiment folder {folder}")
    if choice.iter is not None:
        path = step_path(folder, choice.iter)
        return path.stem, load_checkpoint(path)
    epoch = choice.epoch if choice.epoch is not None else best_epoch(folder)
    checkpoint = load_checkpoint(epoch_path(folder, epoch))
    if choice.avg == 0:
        return f"epoch-{epoch}", checkpoint
    require(choice.avg <= epoch, "--avg", f"there are only {epoch} epochs up to epoch {epoch}, not {choice.avg}")
    earlier = None
    # From the very beginning there is nothing to take away, unless the average began anew when alpha had moved.
    if choice.avg < epoch or checkpoint.average["start"] > 0:
        before = load_checkpoint(inherited_epoch_path(folder, epoch - choice.avg))
        # What was frozen until then is its own average.
        earlier = {**before.average, "parameters": before.model | before.average["parameters"]}
    model = checkpoint.model | average_between(earlier, checkpoint.average)
    return f"epoch-{epoch}-avg-{choice.avg}", replace(checkpoint, model=model)


def best_epoch(folder: Path) -> int:
    """The epoch of a run with the lowest error rate on the dev set."""
    path = folder / BEST
    try:
        best = read_json(path, BestEpoch).epoch
    except FileNotFoundError:
        raise UserError(f"{folder} has no finished epoch yet (no best.json); train it, or choose --iter") from None
    except ValueError as error:
        raise UserError(f"{path} cannot be read: {error}; choose --epoch") from None
    if best < 1:
        raise UserError(f"{folder}: no epoch has a word error rate on a dev set; choose --epoch")
    return best


def trained_alpha(config: Config, progress: Progress, folder: Path) -> float:
    """Alpha at a checkpoint; UserError if it was changing within the epoch that the checkpoint lies in."""
    epochs = progress.epoch - progress.branch_epoch
    alpha = config.normalisation.alpha_at(epochs)
    later = config.normalisation.alpha_at(epochs + 1)
    if progress.batch > 0 and later != alpha:
        raise UserError(
            f"alpha was on its way from {alpha:g} to {later:g} at this checkpoint of {folder}; "
            "say which one with --alpha"
        )
    return alpha


def fingerprint(parameters: Mapping[str, Tensor], alpha: float) -> str:
    """A digest of the values."""
    digest = hashlib.sha256(f"{alpha}".encode())
    for name in sorted(parameters):
        digest.update(name.encode())
        digest.update(parameters[name].contiguous().cpu().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
