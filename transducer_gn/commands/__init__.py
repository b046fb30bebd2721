"""The functions behind `transducer-gn` and every script of egs/ and local/.

Each module has `parser()` and `main(arguments=None)`. A new command is a module and a line in `GROUPS`.
"""

# What each does, in one line, by what it is for; nothing is imported before it is wanted.
GROUPS = {
    "using a trained system": {
        "transcribe": "recognise recordings",
        "streaming_decode": "recognise audio as it arrives",
        "serve": "serve live recognition, and a page to watch it",
        "export": "write a trained system as ONNX files",
    },
    "experiments": {
        "run": "run experiments, from data to report",
        "read_text": "let a predictor read text before it hears speech",
        "train": "train a Transducer",
        "decode": "recognise test sets and count errors",
        "compute_latency": "measure when words come out",
        "over_epochs": "decode and measure a run at the end of every epoch",
        "over_chunks": "decode and measure a run with chunks of several sizes",
        "nbest_coverage": "measure how much of the exact normaliser an N-best list covers",
        "nbest_quality": "measure how good the lists are that stand for Z in training",
        "report": "gather all runs of a folder into tables and figures",
    },
    "data": {
        "make_mini_corpus": "speak the mini corpus",
        "download": "download a corpus, or noise",
        "import_common_voice": "make a part of clips of Common Voice",
        "make_manifests": "check a corpus and write its manifests",
        "make_noise_manifest": "check noise recordings and write their manifest",
        "compute_features": "compute and store features",
        "train_token_model": "train sentence piece models",
        "finish_manifests": "combine the training parts and check everything",
        "export_shar": "export features and manifests as Shar",
        "describe": "describe a prepared folder",
        "make_text": "make one file of sentences of books, to be read",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}
# Under `transducer-gn`, where a command is called otherwise than its module.
RENAMED = {"streaming_decode": "stream"}


def subcommand(name: str) -> str:
    """What the command of a module is called under `transducer-gn`."""
    return RENAMED.get(name, name.replace("_", "-"))
