"""Systems that change their minds, on disk, and a server that has two of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import LiveServer, live_server
from mind_changer import write_mind_changer


@pytest.fixture(scope="session")
def stubborn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A locally normalised system."""
    path = tmp_path_factory.mktemp("live") / "local" / "epoch-1.pt"
    path.parent.mkdir()
    write_mind_changer(path, alpha=1.0)
    return path


@pytest.fixture(scope="session")
def revising(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same system, globally normalised."""
    path = tmp_path_factory.mktemp("live") / "global" / "epoch-1.pt"
    path.parent.mkdir()
    write_mind_changer(path, alpha=0.0)
    return path


@pytest.fixture(scope="module")
def server(stubborn: Path, revising: Path) -> Iterator[LiveServer]:
    """A server with both."""
    with live_server("--checkpoint", stubborn, "--checkpoint", revising) as running:
        yield running
