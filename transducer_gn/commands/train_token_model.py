"""Stage 4: train sentence piece models on the transcripts of the training parts."""

from dataclasses import dataclass
from pathlib import Path

from transducer_gn.common.command_line import CommandParser, command_parser, settings_from
from transducer_gn.common.stages import Stage, file_fingerprint
from transducer_gn.data.layout import read_roles
from transducer_gn.data.manifest_files import read_json_lines


@dataclass(frozen=True)
class TokenModelOptions:
    """Train token models into DATA_DIR/lang_TYPE_SIZE.

    Attributes:
        data_dir: the folder that stage 1 wrote to
        vocab_sizes: numbers of pieces, the three special ones included; one model for each
        token_model: unigram (as icefall does, whatever it calls it) or bpe
    """

    data_dir: Path
    vocab_sizes: list[int]
    token_model: str = "unigram"


def parser() -> CommandParser:
    """Flags of the command."""
    return command_parser(__doc__, TokenModelOptions)


def main(arguments: list[str] | None = None) -> None:
    """Train token models into DATA_DIR/lang_TYPE_SIZE."""
    options = settings_from(TokenModelOptions, parser().parse_args(arguments))
    parts = read_roles(options.data_dir)["train"]
    manifests = [options.data_dir / "manifests" / f"supervisions_{part}.jsonl.gz" for part in parts]
    fingerprints = [file_fingerprint(manifest) for manifest in manifests]
    for vocab_size in options.vocab_sizes:
        folder = options.data_dir / f"lang_{options.token_model}_{vocab_size}"
        inputs = {"manifests": fingerprints, "vocab_size": vocab_size, "type": options.token_model}
        stage = Stage(folder / ".made.json", inputs, [folder / "tokenizer.model", folder / "tokens.txt"])
        if stage.is_done():
            print(f"Token model: {folder} is complete")
            continue
        from transducer_gn.data.tokenizer import save_tokenizer, train_tokenizer

        texts = [entry["text"] for manifest in manifests for entry in read_json_lines(manifest)]
        tokenizer = train_tokenizer(texts, vocab_size, options.token_model)
        stage.begin()
        save_tokenizer(tokenizer, folder)
        stage.finish()
        tokens = sum(len(tokenizer.encode(text)) for text in texts)
        print(f"Token model: {folder}, {tokens / len(texts):.1f} tokens per utterance")
