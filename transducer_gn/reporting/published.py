"""Results of others on LibriSpeech, to print beside ours. Word error rates in per cent, without a language model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperSystem:
    """A row of the paper's main table.

    Attributes:
        rates: by test set
        latency: change of the mean emission time on test-clean, in ms; None where not given
    """

    name: str
    normalisation: str
    rates: dict[str, float]
    latency: int | None


def _rates(*values: float) -> dict[str, float]:
    return dict(zip(("dev-clean", "dev-other", "test-clean", "test-other"), values, strict=True))


PAPER_SYSTEMS = (
    PaperSystem("paper: Variani et al., baseline", "local", {"test-clean": 4.9, "test-other": 11.0}, None),
    PaperSystem("paper: finite-state, vocabulary 32", "local", {"test-clean": 4.66, "test-other": 11.58}, None),
    PaperSystem("paper: Variani et al., best", "global", {"test-clean": 3.8, "test-other": 9.5}, None),
    PaperSystem("paper: baseline", "local, alpha 1", _rates(3.33, 9.60, 3.55, 9.43), 0),
    PaperSystem("paper: alpha 0.8", "global, alpha 0.8, N 10", _rates(3.07, 9.04, 3.31, 8.77), 3),
    PaperSystem("paper: alpha 0.6", "global, alpha 0.6, N 10", _rates(3.13, 9.01, 3.34, 8.77), -33),
    PaperSystem("paper: alpha 0.3", "global, alpha 0.3, N 10", _rates(2.98, 8.73, 3.16, 8.41), -49),
    PaperSystem("paper: alpha 0.1", "global, alpha 0.1, N 10", _rates(3.08, 9.35, 3.44, 8.93), -52),
    PaperSystem("paper: lookahead", "local, alpha 1", {"test-clean": 2.67}, None),
)

# Hours of one epoch on 8 V100, by number of competitors; 0 is local training.
PAPER_HOURS_PER_EPOCH = {0: 2 + 20 / 60, 2: 9.0, 5: 13.0, 10: 20.5}


@dataclass(frozen=True)
class PublicSystem:
    """A public streaming system: error rates on test-clean and test-other as its source gives them."""

    name: str
    chunk: str
    greedy: str
    beam: str
    source: str


PUBLIC_SYSTEMS = (
    PublicSystem("icefall streaming zipformer, 66 M", "640 ms", "2.84 / 7.16", "2.81 / 7.11", "icefall RESULTS.md"),
    PublicSystem("the same", "320 ms", "3.06 / 7.79", "3.05 / 7.69", "icefall RESULTS.md"),
    PublicSystem("icefall stateless7_streaming", "640 ms", "2.98 / 7.67", "2.95 / 7.53", "icefall RESULTS.md"),
    PublicSystem("the paper, global, alpha 0.3", "640 ms", "–", "3.16 / 8.41", "paper, beam 50"),
    PublicSystem("SpeechBrain Conformer + LSTM, left 32 chunks", "640 ms", "3.26 / –", "–", "recipe README"),
    PublicSystem("icefall stateless4, 25 epochs", "640 ms", "3.39 / 9.03", "3.33 / 8.74", "icefall RESULTS.md"),
    PublicSystem(
        "icefall lstm_transducer_stateless3", "LSTM encoder", "3.66 / 9.48", "3.54 / 9.25", "icefall RESULTS.md"
    ),
    PublicSystem("the paper, local baseline", "640 ms", "–", "3.55 / 9.43", "paper, beam 50"),
    PublicSystem("GNAT, best", "not given", "–", "3.8 / 9.5", "quoted by the paper"),
    PublicSystem("torchaudio Emformer RNN-T, 76.7 M", "Emformer", "–", "4.56 / 10.66", "examples README"),
    PublicSystem("NeMo FastConformer hybrid, 114 M, more data", "1040 ms", "– / 5.4", "–", "model card"),
)
