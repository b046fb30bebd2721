"""Files of tensors and plain values: reading one runs no code and takes no more memory than the file has bytes.

torch writes archives in which every tensor lies uncompressed, and reads them without a look at checksums. Whoever means
harm can pack a huge tensor into a few bytes: compressed, laid over others, or as one number that counts many times.
"""

import pickle
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

PLAIN = (type(None), bool, int, float, str, bytes)
# What a damaged or forged archive leads to in zipfile.
ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    EOFError,
    RuntimeError,
    OSError,
    KeyError,
    IndexError,
    MemoryError,
)
# What torch, and the unpickler that it has for files from elsewhere, raise for all that is no such file.
UNREADABLE = (
    RuntimeError,
    pickle.UnpicklingError,
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    struct.error,
    MemoryError,
    ImportError,
)


def write_tensors(content: Mapping[str, Any], path: Path) -> None:
    """Write tensors and plain values; a disk that is full raises OSError, for which torch has an error of its own."""
    try:
        with path.open("wb") as file:
            torch.save(dict(content), file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def read_tensors(path: Path, mmap: bool = False) -> Any:
    """What `write_tensors` wrote; ValueError if it is damaged, or something else.

    Args:
        mmap: leave tensors on disk until they are used, their checksums unchecked: quick, for a look at the rest
    """
    if not is_honest(path) or not (mmap or is_intact(path)):
        raise ValueError("its checksums do not fit")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except UNREADABLE as error:
        raise ValueError(f"torch cannot read it ({type(error).__name__})") from error
    check_plain(content, path.stat().st_size)
    return content


def is_honest(path: Path) -> bool:
    """Whether a file is an archive whose parts lie in it uncompressed and not over each other."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
    except ARCHIVE_ERRORS:
        return False
    is_stored = all(part.compress_type == zipfile.ZIP_STORED for part in parts)
    return is_stored and sum(part.file_size for part in parts) <= path.stat().st_size


def is_intact(path: Path) -> bool:
    """Whether every part of a file of tensors has the checksum that was written with it; torch does not look."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except ARCHIVE_ERRORS:
        return False


def check_plain(content: Any, size: int) -> None:
    """ValueError unless there are only plain values, containers, and tensors that fit into a file of `size` bytes."""
    waiting, seen = [content], set[int]()
    while waiting:
        value = waiting.pop()
        if isinstance(value, PLAIN) or id(value) in seen:
            continue
        # Containers may hold themselves.
        seen.add(id(value))
        if isinstance(value, Tensor):
            _check_tensor(value, size)
        elif isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list | tuple | set):
            waiting += value
        else:
            raise ValueError(f"it holds a {type(value).__name__}, which is no plain value")


def _check_tensor(tensor: Tensor, size: int) -> None:
    is_ordinary = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    if not is_ordinary or tensor.numel() * tensor.element_size() > size:
        raise ValueError("it holds a tensor of another kind, or larger than the file")
