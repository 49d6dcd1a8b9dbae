"""Frozen dataclasses to JSON and back.

Each record is written with its class name under ``type``, so a field that may hold one of several classes (a sampler,
say) is read back as the one it was. Only the classes named in the annotations can be created; no code is loaded.

A stored record may be older than a field of its class: a missing field takes its default. So a new field needs a
default that keeps the earlier behaviour. A class that was renamed lists the names it is stored under in
``FORMER_NAMES``; one whose name once meant another class is stored under its ``STORED_NAME``.
"""

from __future__ import annotations

import dataclasses
import types
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from nrf.errors import InputError

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Convert a value, such as a frozen dataclass, to plain values that JSON can hold.

    Example:
        >>> from nrf.samplers import SGLD
        >>> to_json(SGLD(step_size=0.1))["type"]
        'SGLD'
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"type": _stored_name(type(value)), **fields}
    if isinstance(value, tuple | list):
        return [to_json(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    return value


def from_json(annotation: type[T], data: Any, where: str = "config") -> T:
    """Rebuild a value of the annotated type; an error names the place of whatever does not fit.

    Example:
        >>> from nrf.samplers import SGHMC, SGLD
        >>> from_json(SGLD | SGHMC, to_json(SGHMC(friction=0.3))).friction
        0.3
    """
    return _decode(annotation, data, where)  # type: ignore[no-any-return]


def differences(old: Any, new: Any, where: str = "") -> dict[str, tuple[Any, Any]]:
    """Which leaves of two :func:`to_json` results differ, by dotted name."""
    if isinstance(old, dict) and isinstance(new, dict):
        found: dict[str, tuple[Any, Any]] = {}
        for key in {**old, **new}:
            found |= differences(old.get(key), new.get(key), f"{where}.{key}" if where else key)
        return found
    return {} if old == new else {where: (old, new)}


def _decode(annotation: Any, data: Any, where: str) -> Any:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _decode(get_args(annotation)[0], data, where)
    if origin in (Union, types.UnionType):
        return _decode_union(get_args(annotation), data, where)
    if origin is Literal:
        if data in get_args(annotation):
            return data
        raise InputError(f"{where} is {data!r}, not one of {', '.join(map(str, get_args(annotation)))}")
    if origin is tuple:
        return _decode_tuple(get_args(annotation), data, where)
    if dataclasses.is_dataclass(annotation):
        return _decode_record(annotation, data, where)
    if annotation is Path and isinstance(data, str):
        return Path(data)
    if annotation is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if annotation is type(None):
        annotation = types.NoneType
    if isinstance(data, annotation) and not (annotation is int and isinstance(data, bool)):
        return data
    raise InputError(f"{where} is {data!r}, not of type {getattr(annotation, '__name__', annotation)}")


def _decode_union(options: tuple[Any, ...], data: Any, where: str) -> Any:
    options = tuple(get_args(o)[0] if get_origin(o) is Annotated else o for o in options)
    if isinstance(data, dict):
        for option in options:
            if dataclasses.is_dataclass(option) and data.get("type") in _names(option):
                return _decode(option, data, where)
        known = ", ".join(o.__name__ for o in options if dataclasses.is_dataclass(o) and isinstance(o, type))
        raise InputError(f"{where} is of type {data.get('type')!r}, not one of {known}")
    for option in options:
        try:
            return _decode(option, data, where)
        except InputError:
            continue
    raise InputError(f"{where} is {data!r}, which fits none of the types it may have")


def _decode_tuple(args: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise InputError(f"{where} is {data!r}, not a list")
    if len(args) == 2 and args[1] is ...:
        args = (args[0],) * len(data)
    if len(args) != len(data):
        raise InputError(f"{where} has {len(data)} values, not {len(args)}")
    return tuple(_decode(a, d, f"{where}[{i}]") for i, (a, d) in enumerate(zip(args, data, strict=True)))


def _decode_record(annotation: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict) or data.get("type") not in _names(annotation):
        raise InputError(f"{where} does not hold a {annotation.__name__}")
    data = {name: value for name, value in data.items() if name not in getattr(annotation, "RETIRED", ())}
    hints = get_type_hints(annotation, include_extras=True)
    fields = {f.name: f for f in dataclasses.fields(annotation)}
    unknown = sorted(set(data) - {"type"} - set(fields))
    missing = sorted(name for name, field in fields.items() if name not in data and not _has_default(field))
    if unknown or missing:
        raise InputError(
            f"{where} ({annotation.__name__}) does not have the fields this version knows: "
            f"missing {missing}, unknown {unknown}"
        )
    given = {name: _decode(hints[name], data[name], f"{where}.{name}") for name in fields if name in data}
    return annotation(**given)


def _stored_name(annotation: Any) -> str:
    """The name under which records of a class are written."""
    name: str = vars(annotation).get("STORED_NAME", annotation.__name__)
    return name


def _names(annotation: Any) -> tuple[str, ...]:
    """The names under which a class may be stored: its own and its former ones; a subclass has its own."""
    return (_stored_name(annotation), *vars(annotation).get("FORMER_NAMES", ()))


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
