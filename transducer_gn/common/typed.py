"""Values from outside as what they should be: typed, or a sentence that says what stands where and what should.

JSON and checkpoints hold numbers, texts, lists and mappings; dataclasses and type hints say which of them are wanted.
Nothing is guessed: a text is no number, true is no number, a field that nobody knows is an error.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

KINDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    list: "a list",
    tuple: "a list",
    dict: "names and values",
    Mapping: "names and values",
    types.NoneType: "null",
}
# No integer that means something has more bits, and others take long to be written out.
MOST_BITS = 64
SHOWN = 60


def typed(kind: Any, value: Any, place: str = "the content") -> Any:
    """The value as a `kind`: a dataclass, a type hint made of plain types, or Any; ValueError if it is none.

    Numbers may be whole where any number is wanted, and lists may stand for tuples.

    Args:
        place: where the value stands, for the error
    """
    if kind is Any:
        return value
    if is_dataclass(kind) and isinstance(kind, type):
        return typed_fields(kind, value, place)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        found = next((option for option in arguments if type(option) is type(value) and option == value), MISSING)
        if found is MISSING:
            raise ValueError(f"{place} must be one of {', '.join(map(str, arguments))}, not {shown(value)}")
        return found
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value, place)
    return _plain(origin or kind, arguments, value, place)


def typed_fields(kind: Any, value: Any, place: str = "the content") -> Any:
    """A dataclass from names and values; fields that are not there have their defaults."""
    hints = type_hints(kind)
    _expect(Mapping, value, place)
    for name in value:
        if name not in hints:
            raise ValueError(f"{place} has a field {shown(name)}, which is not known")
    for field in fields(kind):
        if field.name not in value and field.default is MISSING and field.default_factory is MISSING:
            raise ValueError(f"{place} has no {field.name}")
    return kind(**{name: typed(hints[name], item, f"{place}.{name}") for name, item in value.items()})


@cache
def type_hints(kind: type) -> dict[str, Any]:
    """Types of the fields of a dataclass."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _one_of(options: tuple[Any, ...], value: Any, place: str) -> Any:
    for option in options:
        try:
            return typed(option, value, place)
        except ValueError as error:
            last = error
    raise last


def _plain(kind: Any, arguments: tuple[Any, ...], value: Any, place: str) -> Any:
    """A value of a plain type, with what it consists of."""
    if kind is float and type(value) is int and value.bit_length() <= MOST_BITS:
        return float(value)
    _expect(kind, value, place)
    if kind is int and value.bit_length() > MOST_BITS:
        raise ValueError(f"{place} is too large")
    if kind is str:
        # Halves of characters, which JSON can hold, cannot be written to any file.
        value.encode()
    if kind is list and arguments:
        return [typed(arguments[0], item, f"{place}[{number}]") for number, item in enumerate(value)]
    if kind is tuple and arguments:
        wanted = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(value) != len(wanted):
            raise ValueError(f"{place} must be a list of {len(wanted)}, not of {len(value)}")
        return tuple(typed(item, own, f"{place}[{n}]") for n, (item, own) in enumerate(zip(wanted, value, strict=True)))
    if kind in (dict, Mapping) and arguments:
        return {
            typed(arguments[0], name, f"a name in {place}"): typed(arguments[1], item, f"{place}.{name}")
            for name, item in value.items()
        }
    return value


def _expect(kind: Any, value: Any, place: str) -> None:
    accepted = {tuple: (list, tuple), Mapping: (dict,)}.get(kind, (kind,))
    # Of plain types no others count, as true counts as a number for Python; of others, such as tensors, any does.
    if type(value) not in accepted and (kind in KINDS or not isinstance(value, kind)):
        raise ValueError(f"{place} must be {KINDS.get(kind, kind.__name__)}, not {shown(value)}")


def shown(value: Any) -> str:
    """A value for a sentence, cut short."""
    text = (
        ascii(value) if isinstance(value, str | int | float | bool | None) else KINDS.get(type(value), "another kind")
    )
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
