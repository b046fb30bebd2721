"""Seeds that depend on what is drawn and on nothing else: not on the process, the worker or the order of work."""

import hashlib


def stable_seed(*identity: str | int) -> int:
    """Return a 64-bit seed for the thing named by `identity`; the same on every machine and Python version."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in identity)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
