"""Check whether a stored detector can be what it claims to be, before anything is built from it.

Memory and time here do not depend on what the JSON claims, only on what the file of weights holds. Each check raises an
:class:`~nrf.errors.InputError` that names what is wrong.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from nrf.detect.calibration import CalibratedOn
from nrf.detect.fitted import Own
from nrf.detect.pixels import PixelScale
from nrf.detect.replicas import Replicas
from nrf.detect.tables.schema import Schema
from nrf.errors import InputError
from nrf.fields import Detection
from nrf.learners import InclusiveConfig
from nrf.runs.spec import PairSpec

MOST_JSON = 64 * 2**20
"""Maximum bytes of a description. A thousand columns take half a million; levels of hashed columns some 25 each."""
MOST_HEADER = 16 * 2**20
"""Maximum bytes of the header of a file of weights; those of nrf have a few thousand."""
SMALL_EVENT = 2**20
"""Number of values in a row or an image that is accepted, whatever the weights are."""
FAR = 1000.0
"""More than the novelties of a column can ever sum to: the encoder's logarithm of the largest number is 712."""
POSITIVE = ("variances", "epsilon", "spread")
"""Buffers that other values are divided by."""
MODULES = ("potential", "generator")


def parsed(path: Path) -> Any:
    """The content of a JSON file that is not too large and has finite numbers alone."""
    size = path.stat().st_size
    if size > MOST_JSON:
        raise InputError(f"it has {size} bytes, more than the {MOST_JSON} that a description may have")
    return json.loads(path.read_bytes().decode(), parse_float=_finite, parse_constant=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise InputError(f"the number {text} in it is not finite")
    return number


def check_header(content: bytes) -> None:
    """Check the length of a safetensors file's header, which is at the start of the file."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(MOST_HEADER, len(content) - 8):
        raise InputError("it is no safetensors file, or not all of it")


def whole(description: Mapping[str, Any], name: str, least: int = 0) -> int:
    """A field that must be a whole number."""
    value = description[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{name} must be a whole number from {least} on, got {value!r}")
    return value


def check_plain(description: Mapping[str, Any]) -> None:
    """Check the fields that nothing else checks."""
    offset, names, health = (description[name] for name in ("offset", "feature_names_in", "health"))
    made_with = description["versions"]
    if not isinstance(made_with, dict) or not all(isinstance(value, str) for value in made_with.values()):
        raise InputError("versions must be an object of names and versions")
    if offset is not None and not _is_number(offset):
        raise InputError(f"offset must be a number or null, got {offset!r}")
    if description["calibrated_on"] not in get_args(CalibratedOn):
        raise InputError(f"calibrated_on is {description['calibrated_on']!r}, which is not allowed")
    if health is not None and not (isinstance(health, dict) and all(map(_is_number, health.values()))):
        raise InputError("health must be an object of numbers, or null")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise InputError("feature_names_in must be a list of names, or null")
    n_features = whole(description, "n_features_in", 1)
    if names is not None and len(names) != n_features:
        raise InputError(f"there are {len(names)} names in feature_names_in, but n_features_in is {n_features}")
    if whole(description, "split_seed") >= 2**32:
        raise InputError("split_seed is no seed of NumPy: it must be below 2**32")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Require that all stored values are finite, except open bounds."""
    for name, value in tensors.items():
        if name != "bounds" and value.is_floating_point() and not torch.isfinite(value).all():
            raise InputError(f"{name} has values that are not finite")


def check_sizes(encoder: Schema | None, spec: PairSpec, own: Own, tensors: Mapping[str, Tensor]) -> None:
    """Require numbers in the file for all buckets and units, and tensors for all layers."""
    numbers = sum(value.numel() for value in tensors.values())
    columns = () if encoder is None else encoder.kept_columns
    buckets = sum(column.n_buckets for column in columns)
    if buckets > numbers:
        raise InputError(f"the encoder has {buckets} buckets, the weights have {numbers} numbers")
    if not isinstance(spec.learner, InclusiveConfig):  # others may hold arrays of any size
        raise InputError(f"its learner is a {type(spec.learner).__name__}, that of a detector an InclusiveConfig")
    potential = spec.potential.network if isinstance(spec.potential, Detection) else spec.potential
    for network in [n for n, o in zip((potential, spec.generator), own, strict=True) if o is None]:
        for name, value in _sizes(network):
            if not (0 if name == "n_waves" else 1) <= value <= numbers:
                raise InputError(f"{name} of {type(network).__name__} is {value}, the weights have {numbers} numbers")
        layers = len(getattr(network, "widths", ()))
        if layers > len(tensors):
            raise InputError(f"widths of {type(network).__name__} are {layers}, there are {len(tensors)} tensors")


def _sizes(network: Any) -> Iterator[tuple[str, int]]:
    for field in dataclasses.fields(network):
        value = getattr(network, field.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, int) and not isinstance(part, bool):
                yield field.name, part


def members_shape(
    described: Any, encoder: Schema | None, pixels: PixelScale | None, tensors: Mapping[str, Tensor]
) -> tuple[tuple[int, ...], int]:
    """The shape of the networks' input and the number of networks, if encoder and tensors agree."""
    if not isinstance(described, dict) or set(described) != {"shape", "count"}:
        raise InputError("members must have a shape and a count")
    count = whole(described, "count", 1)
    if encoder is not None:
        shape: tuple[int, ...] = (len(encoder.learned),)
    else:
        assert pixels is not None
        shape = pixels.shape
    if described["shape"] != list(shape):
        raise InputError(f"members take rows of shape {described['shape']}, but rows are encoded to {list(shape)}")
    if math.prod(shape) > max(SMALL_EVENT, sum(value.numel() for value in tensors.values())):
        raise InputError(f"images of shape {list(shape)} are larger than all weights")
    _require(tensors, "surprise_costs", (count,), torch.float32)
    _require(tensors, "bounds", (2, shape[0]), torch.float32)
    return shape, count


def _require(tensors: Mapping[str, Tensor], name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if name not in tensors:
        raise InputError(f"the tensor {name} is missing")
    found = tensors[name]
    if tuple(found.shape) != shape or found.dtype != dtype:
        raise InputError(f"{name} is {found.dtype} {list(found.shape)}, it must be {dtype} {list(shape)}")
    return found


def check_tensors(
    tensors: Mapping[str, Tensor],
    spec: PairSpec,
    shape: tuple[int, ...],
    count: int,
    own: Own,
    encoder: Schema | None,
) -> None:
    """Require all tensors but those of the feature step, of the right shape and type, and no others.

    Args:
        tensors: The stored tensors.
        spec: What the networks are built by; here they are built without memory for their weights.
        shape: Shape of the networks' input.
        count: Number of networks of each kind.
        own: Networks of the user's own that are used instead.
        encoder: The encoder of the columns.
    """
    with torch.device("meta"):
        u = spec.potential.build(shape) if own[0] is None else own[0]
        q = spec.generator.build(shape) if own[1] is None else own[1]
    known = {"surprise_costs", "bounds", "calibration/scores"}
    for name, module in zip(MODULES, (u, q), strict=True):
        for kind in ("last", "averaged", "settled"):
            prefix = f"{kind}/{name}/"
            if kind != "last" and not any(key.startswith(prefix) for key in tensors):
                continue
            grown = _grown(module, tensors, prefix)
            for key, value in module.state_dict().items():
                own_shape = grown.get(key, tuple(value.shape))
                stacked = (count, *own_shape) if count > 1 else own_shape
                found = _require(tensors, prefix + key, stacked, value.dtype)
                positive = (*POSITIVE, "n_rows") if kind == "settled" else POSITIVE
                if key.rpartition(".")[2] in positive and (found <= 0).any():
                    raise InputError(f"{prefix + key} must be positive")
                known.add(prefix + key)
                if key.endswith("running_var") and (found < 0).any():
                    raise InputError(f"{prefix + key} has negative variances")
    _check_bounds(tensors["bounds"], tensors["surprise_costs"], closed=encoder is not None)
    scores = tensors.get("calibration/scores")
    n_rows = 0 if scores is None else scores.numel()
    _require(tensors, "calibration/scores", (max(1, n_rows),), torch.float64)
    for i in range(count):
        _require(tensors, f"calibration/member-{i}", (n_rows,), torch.float64)
        known.add(f"calibration/member-{i}")
    if "calibration/tolerances" in tensors:
        _require(tensors, "calibration/tolerances", (1 + count,), torch.float64)
        if bool((tensors["calibration/tolerances"] < 0).any()):
            raise InputError("a tolerance of scores is negative")
        known.add("calibration/tolerances")
    if "calibration/rows" in tensors:
        event = shape if encoder is None else (encoder.n_outputs,)
        _require(tensors, "calibration/rows", (n_rows, *event), torch.float32)
        known.add("calibration/rows")
    odd = sorted(name for name in tensors if name not in known and not name.startswith("features/"))
    if odd:
        raise InputError(f"there are tensors that belong to nothing: {', '.join(odd[:5])}")


def _grown(module: nn.Module, tensors: Mapping[str, Tensor], prefix: str) -> dict[str, tuple[int, ...]]:
    """Shapes of buffers whose length depends on the fitted rows: the file may choose it, but the same one for all."""
    found = {}
    for path, part in module.named_modules():
        start = f"{path}." if path else ""
        for name, dimension in getattr(part, "GROWS", {}).items():
            value, stored = part.get_buffer(name), tensors.get(f"{prefix}{start}{name}")
            if stored is None or stored.ndim < value.ndim:
                continue
            shape = list(value.shape)
            if name != "variances" or value.shape[-1] == stored.shape[-1]:  # a kernel has one for all
                shape[dimension] = stored.shape[dimension]
            found[start + name] = tuple(shape)
        lengths = {found[start + n][d] for n, d in getattr(part, "GROWS", {}).items() if start + n in found}
        if len(lengths) > 1:
            raise InputError(f"{prefix}{start[:-1]} has parts of different lengths: {sorted(lengths)}")
        if lengths and min(lengths) < getattr(part, "FEWEST", 1):
            raise InputError(f"{prefix}{start[:-1]} has parts of length {min(lengths)}, which is too short")
        rotation = tensors.get(f"{prefix}{start}rotation")
        if hasattr(part, "GROWS") and rotation is not None and rotation.numel():
            size = part.get_buffer("means").shape[-1]
            found[f"{start}rotation"] = (size, size)
    return found


def _check_bounds(bounds: Tensor, costs: Tensor, *, closed: bool) -> None:
    low, high = bounds
    if not (low <= high).all() or (closed and not torch.isfinite(bounds).all()):
        raise InputError("bounds must be finite, with none of the lower ones above the upper one")
    if (costs < 0).any():
        raise InputError("surprise_costs must not be negative: a novelty makes no row more normal")


def check_columns(encoder: Schema | None, pixels: PixelScale | None, step: Any, n_features: int) -> None:
    """Require that the output of each part fits the input of the next one."""
    if pixels is not None:
        n_expected: int | None = math.prod(pixels.shape)
    else:
        n_expected = None if step is not None or encoder is None else len(encoder.columns)
    if n_expected not in (None, n_features):
        raise InputError(f"n_features_in is {n_features}, the columns or pixels are {n_expected}")
    made = getattr(step, "n_columns", None)
    if encoder is not None and made is not None and made != len(encoder.columns):
        raise InputError(f"the feature step makes {made} columns, the encoder has {len(encoder.columns)}")


def check_potential(replicas: Replicas, encoder: Schema | None) -> None:
    """Require a finite potential for rows within the bounds, and for novelties, so that rows are not blamed later."""
    low, high = replicas.bounds
    if encoder is None:
        rows = torch.stack([torch.full(replicas.shape, x) for x in (-1.0, 0.0, 1.0)])
    else:
        rows = torch.zeros(4, encoder.n_outputs)
        for i, values in enumerate((low, high, (low + high) / 2)):
            rows[i, encoder.learned] = values
        rows[3] = FAR
    device = next((p.device for p in replicas.module("potential").parameters()), torch.device("cpu"))
    if not torch.isfinite(replicas.potentials(rows.to(device))).all():
        raise InputError("its potential is not finite where the training rows were: the weights are damaged")


def is_digest(value: object) -> bool:
    """Whether a value can be the digest of a file, which is a part of that file's name."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value) is not None
