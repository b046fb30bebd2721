"""Packaging of transducer_gn. `pip install -e .` makes the scripts under egs/ importable from anywhere."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

setup(
    name="transducer_gn",
    version="0.1.0",
    description="Streaming Transducers trained without label bias: global normalisation for speech recognition",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["transducer_gn", "transducer_gn.*"]),
    python_requires=">=3.11",
    # What importing the package needs, without versions: those that were tested stand in requirements.txt.
    install_requires=[
        "torch>=2.6",
        "numpy",
        "lhotse",
        "urllib3",
        "scipy",
        "lilcom",
        "soundfile",
        "kaldi-native-fbank",
        "sentencepiece",
        "espeakng-loader",
        "jsonargparse[signatures]",
        "kaldialign",
        "tensorboard",
        "matplotlib",
    ],
)
