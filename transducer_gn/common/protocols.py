"""Kinds of objects that several packages ask for."""

from typing import Any, ClassVar, Protocol


class IsDataclass(Protocol):
    """Anything whose fields can be listed."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
