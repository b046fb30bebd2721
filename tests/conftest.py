"""What all tests share: one thread, and fixtures that are expensive to make."""

from collections.abc import Iterator

import pytest
import torch

pytest_plugins = ["prepared_corpus", "shared_runs"]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Tensors are so small that threads would spend their time waiting for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
