"""Packaging of transducer_gn; what there is to say stands in pyproject.toml."""

from setuptools import setup

setup()
