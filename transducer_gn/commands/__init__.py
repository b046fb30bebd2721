"""The functions behind every script of egs/ and local/. Each module has `parser()` and `main(arguments=None)`."""

# What each does, in one line; nothing is imported before it is wanted.
COMMANDS = {
    "train": "train a Transducer",
    "decode": "recognise test sets and count errors",
    "compute_latency": "measure when words come out",
    "streaming_decode": "recognise audio as it arrives",
    "export": "write a trained system as ONNX files",
    "nbest_coverage": "measure how much of the exact normaliser an N-best list covers",
    "report": "gather all runs of a folder into tables and figures",
    "run": "run experiments, from data to report",
    "make_mini_corpus": "speak the mini corpus",
    "download": "download a corpus, or noise",
    "make_manifests": "check a corpus and write its manifests",
    "make_noise_manifest": "check noise recordings and write their manifest",
    "compute_features": "compute and store features",
    "train_token_model": "train sentence piece models",
    "finish_manifests": "combine the training parts and check everything",
    "export_shar": "export features and manifests as Shar",
    "describe": "describe a prepared folder",
}
