"""A fitted detector as a directory: ``detector.json`` and a file of weights. No pickle.

The weights have a name of their own for each content, ``weights-DIGEST.safetensors``, and ``detector.json``, which has
that digest, is replaced last, in one step. So at every moment, however a process ends, the folder holds the whole
detector of before or the whole new one; and ``detector.json`` is the file to watch for a new one. Version 0.1.0 wrote
``weights.safetensors``, which is still read.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from nrf.config import from_json, to_json
from nrf.detect.calibration import FALSE_ALARM_RATE, Calibration, ThresholdRule
from nrf.detect.features import from_stored, stored
from nrf.detect.parameters import check_device, check_parameters
from nrf.detect.pixels import PixelScale
from nrf.detect.replicas import Replicas
from nrf.detect.stored_checks import (
    MOST_JSON,
    check_columns,
    check_finite,
    check_header,
    check_plain,
    check_potential,
    check_sizes,
    check_tensors,
    is_digest,
    members_shape,
    parsed,
    whole,
)
from nrf.detect.tables.files import FileColumns
from nrf.detect.tables.schema import Schema
from nrf.errors import CheckpointError, InputError
from nrf.files import write_atomically
from nrf.runs.spec import PairSpec
from nrf.training.checkpoint import versions

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector

FORMAT, VERSION = "nrf-detector", 3
WEIGHTS, DESCRIPTION = "weights.safetensors", "detector.json"
MOST_LOOKED_AT = 2**20
FIELDS = {
    "format",
    "version",
    "versions",
    "parameters",
    "custom_modules",
    "encoder",
    "pixels",
    "recipe",
    "features",
    "threshold_rule",
    "split_seed",
    "n_iter",
    "health",
    "file_columns",
    "members",
    "offset",
    "calibrated_on",
    "n_features_in",
    "feature_names_in",
    "weights_digest",
    "digest",
}
DEFAULTS: dict[str, Any] = {
    "custom_modules": [],
    "pixels": None,
    "feature_names_in": None,
    "threshold_rule": None,
    "features": None,
    "split_seed": 0,
    "n_iter": None,
    "health": None,
    "file_columns": None,
}
"""Fields a stored detector may lack, with what that means; a field newer than the format's version belongs here."""
ATTEMPTS = 5
"""How often a folder is read that is replaced while it is read."""
CUSTOM = ("potential", "generator", "features")
NOT_STORED = ("features", "potential", "generator", "callbacks", "random_state", "verbose", "device")


def save(detector: NRFDetector, path: Path) -> None:
    """Write a fitted detector; an existing detector there is replaced, anything else is not.

    Calibration rows are stored with ``keep_examples`` alone, in a file that only its owner can read.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(detector)
    check_parameters(detector)
    if not is_free(path):
        raise InputError(f"{path} exists and is no saved detector; choose another place")
    content, text, digest = _packed(detector)
    path.mkdir(parents=True, exist_ok=True)
    with _alone_in(path):
        weights = f"weights-{digest}.safetensors"
        write_atomically(path / weights, content, private=detector.keep_examples)
        write_atomically(path / DESCRIPTION, text)
        for other in path.iterdir():  # what was replaced, and what saves that were killed have left
            if other.name != weights and _is_ours(other):
                with suppress(OSError):
                    other.unlink()


def is_free(path: Path) -> bool:
    """Whether a detector may be saved there: nothing is there, or a detector, or the rest of a save that was killed."""
    if not path.exists():
        return True
    if not path.is_dir():
        return False
    return (path / DESCRIPTION).is_file() or all(map(_is_ours, path.iterdir()))


def _is_ours(path: Path) -> bool:
    """Whether it is a file of weights, or one that was being written."""
    if path.name == WEIGHTS:  # a name that others give too
        with suppress(OSError), path.open("rb") as file:
            return b'"calibration/scores"' in file.read(MOST_LOOKED_AT)
        return False
    digest = path.name.removeprefix("weights-").removesuffix(".safetensors")
    return path.name.startswith(".partial-") or (path.name == f"weights-{digest}.safetensors" and is_digest(digest))


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Of two processes that save there, one waits for the other. However one ends, the system gives its lock back."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _packed(detector: NRFDetector) -> tuple[bytes, bytes, str]:
    """A detector as the content of its two files, and the digest of the first."""
    packed = detector.members_.packed()
    features, arrays = stored(detector.features_)
    tensors = {name: value.contiguous() for name, value in packed["tensors"].items()}
    tensors["calibration/scores"] = torch.from_numpy(detector.calibration_.scores)
    if detector.keep_examples and detector._calibration_rows is not None:
        tensors["calibration/rows"] = detector._calibration_rows.cpu().contiguous()
    calibrations = [detector.calibration_, *detector._member_calibrations]
    tensors["calibration/tolerances"] = torch.tensor([c.tolerance for c in calibrations], dtype=torch.float64)
    for i, calibration in enumerate(detector._member_calibrations):
        tensors[f"calibration/member-{i}"] = torch.from_numpy(calibration.scores)
    tensors |= {f"features/{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    content = save_tensors(tensors)
    parameters = {k: v for k, v in detector.get_params(deep=False).items() if k not in NOT_STORED}
    seed = detector.random_state
    names = getattr(detector, "feature_names_in_", None)
    description = {
        "format": FORMAT,
        "version": VERSION,
        "versions": versions(),
        "parameters": to_json(parameters | {"random_state": seed if isinstance(seed, int) else None}),
        "custom_modules": [n for n in ("potential", "generator") if getattr(detector, n) is not None]
        + (["features"] if features == "given" else []),
        "features": features,
        "threshold_rule": {name: getattr(detector.threshold_rule_, name) for name in ("kind", "rate", "tolerance")},
        "split_seed": detector._split_seed,
        "encoder": None if detector.encoder_ is None else detector.encoder_.to_json(),
        "pixels": None if detector.pixels_ is None else to_json(detector.pixels_),
        "recipe": to_json(detector.recipe_),
        "members": {"shape": list(packed["shape"]), "count": packed["count"]},
        "offset": detector.offset_ if np.isfinite(detector.offset_) else None,
        "calibrated_on": detector.calibrated_on_,
        "n_iter": detector.n_iter_,
        "health": detector.health_,
        "n_features_in": detector.n_features_in_,
        "feature_names_in": None if names is None else list(map(str, names)),
        "file_columns": to_json(detector.file_columns_),
        "weights_digest": hashlib.blake2b(content, digest_size=16).hexdigest(),
    }
    description["digest"] = _digest(description)
    text = (json.dumps(description, indent=1, allow_nan=False) + "\n").encode()
    if len(text) > MOST_JSON:
        raise InputError(
            f"what is known of the columns takes {len(text)} bytes, more than can be stored; lower max_levels"
        )
    return content, text, description["weights_digest"]


def load(path: Path, device: str = "cpu", **modules: Any) -> NRFDetector:
    """Read and check a saved detector.

    Args:
        path: Its directory.
        device: Where to compute.
        modules: ``potential`` and ``generator``, for a detector that was fitted with modules of the user's own.
    """

    check_device(device)
    description, tensors = _read(path)
    wanted = description["custom_modules"]
    if not isinstance(wanted, list) or not all(name in CUSTOM for name in wanted):
        raise CheckpointError(f"{path / DESCRIPTION}: custom_modules can be {', '.join(CUSTOM)}, got {wanted!r}")
    if set(modules) != set(wanted):
        raise InputError(
            f"{path} was fitted with {', '.join(wanted)} of your own: give them to load"
            if wanted
            else f"{path} has the default networks; leave out {', '.join(modules)}"
        )
    try:
        return _built(description, tensors, device, modules)
    except (ArithmeticError, AttributeError, LookupError, TypeError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read by this version: {error}") from error


def _built(
    description: dict[str, Any], tensors: dict[str, torch.Tensor], device: str, modules: dict[str, Any]
) -> NRFDetector:
    """The detector; what it is made of is checked before the networks are built."""
    from nrf.detect.detector import NRFDetector

    stored: dict[str, Any] = description["parameters"]
    parameters: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
    odd = sorted(set(parameters) & set(NOT_STORED) - {"random_state"})
    if odd:
        raise InputError(f"there are parameters that are never stored: {', '.join(odd)}")
    if parameters.get("contamination") is not None:  # earlier versions kept a rate beside it
        parameters["false_alarm_rate"] = None
    detector = NRFDetector(**parameters, **modules, device=device)
    check_parameters(detector)
    if stored.get("random_state") is not None:
        whole(stored, "random_state")
    check_plain(description)
    check_finite(tensors)
    step = from_stored(description["features"], _group(tensors, "features/"), modules.get("features"))
    encoder = None if description["encoder"] is None else Schema.from_json(description["encoder"])
    pixels = None if description["pixels"] is None else from_json(PixelScale, description["pixels"])
    if encoder is None and (pixels is None or step is not None):
        raise InputError("it must have an encoder, or a range of pixels and no feature step")
    detector.features_, detector.encoder_, detector.pixels_ = step, encoder, pixels
    detector.recipe_ = recipe = from_json(PairSpec, description["recipe"])
    own = detector.potential, detector.generator
    check_sizes(encoder, recipe, own, tensors)
    detector.n_features_in_ = description["n_features_in"]
    check_columns(encoder, pixels, step, detector.n_features_in_)
    shape, count = members_shape(description["members"], encoder, pixels, tensors)
    check_tensors(tensors, recipe, shape, count, own, encoder)
    networks = {k: v for k, v in tensors.items() if not k.startswith(("calibration/", "features/"))}
    packed = {"shape": shape, "count": count, "tensors": networks}
    detector.members_ = Replicas.unpacked(packed, recipe, *own, detector._surprises(), device)
    check_potential(detector.members_, encoder)
    tolerances = tensors.get("calibration/tolerances", torch.zeros(1 + count)).tolist()  # none in 0.1.0
    detector.calibration_ = Calibration.of(tensors["calibration/scores"].numpy(), tolerances[0])
    rows = tensors.get("calibration/rows")
    detector._calibration_rows = None if rows is None else rows.to(device)
    detector._member_calibrations = [
        Calibration.of(tensors[f"calibration/member-{i}"].numpy(), tolerances[1 + i]) for i in range(count)
    ]
    offset = description["offset"]
    detector.offset_ = -np.inf if offset is None else float(offset)
    detector.calibrated_on_ = description["calibrated_on"]
    detector.threshold_rule_ = _rule(detector, description["threshold_rule"])
    detector._split_seed = description["split_seed"]
    taken = description["n_iter"]
    detector.n_iter_ = (recipe.train.iterations or 0) if taken is None else whole(description, "n_iter")
    detector.health_, detector.history_ = description["health"], []
    if description["feature_names_in"] is not None:
        detector.feature_names_in_ = np.array(description["feature_names_in"], dtype=object)
    if description["file_columns"] is not None:
        detector.file_columns_ = from_json(FileColumns, description["file_columns"])
    return detector


def _rule(detector: NRFDetector, given: dict[str, Any] | None) -> ThresholdRule:
    """The rule as stored; earlier versions kept its threshold alone, which with the parameters tells most of it."""
    if given is None:
        rate: float = FALSE_ALARM_RATE if detector.false_alarm_rate is None else detector.false_alarm_rate
        given = {"kind": "false_alarm_rate", "rate": rate}
        if detector.contamination is not None:
            given = {"kind": "contamination", "rate": detector.contamination}
        elif detector.offset_ != detector.calibration_.threshold(rate):  # set after the fit: the rate that it keeps
            scores = detector.calibration_.scores
            below = int(np.searchsorted(scores, detector.offset_, side="left"))
            given["rate"] = (below + 1) / (len(scores) + 1)
    rule = from_json(
        ThresholdRule,
        {
            "type": "ThresholdRule",
            **given,
            "threshold": detector.offset_,
            "n_calibration": len(detector.calibration_.scores),
            "calibrated_on": detector.calibrated_on_,
        },
        "threshold_rule",
    )
    if not 0 < rule.rate <= (0.5 if rule.kind == "contamination" else 1):
        raise InputError(f"the rate of the threshold is {rule.rate:g}, which is none")
    return rule


def _group(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value.numpy() for name, value in tensors.items() if name.startswith(prefix)}


def _digest(description: dict[str, Any]) -> str:
    """Of everything but the digest itself, however it is laid out."""
    rest = {name: value for name, value in description.items() if name != "digest"}
    return hashlib.blake2b(json.dumps(rest, sort_keys=True).encode(), digest_size=16).hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    for attempt in range(ATTEMPTS):
        description = _read_description(path)
        weights = path / f"weights-{description['weights_digest']}.safetensors"
        if not weights.is_file() and (path / WEIGHTS).is_file():
            weights = path / WEIGHTS  # of version 0.1.0
        try:
            content = weights.read_bytes()
            break
        except OSError as error:  # replaced since the description was read, or not there
            if attempt == ATTEMPTS - 1:
                raise CheckpointError(f"{path} is no saved detector: it has no {weights.name}") from error
    if hashlib.blake2b(content, digest_size=16).hexdigest() != description["weights_digest"]:
        raise CheckpointError(f"{weights}: damaged or of another detector: it does not match {DESCRIPTION}")
    try:
        check_header(content)
        return DEFAULTS | description, load_tensors(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{weights}: damaged ({error})") from error


def _read_description(path: Path) -> dict[str, Any]:
    file = path / DESCRIPTION
    if not file.is_file():
        killed = path.is_dir() and any(path.iterdir()) and is_free(path)
        why = "; a save was ended before it was done, save again" if killed else ""
        raise CheckpointError(f"{path} is no saved detector: it has no {DESCRIPTION}{why}")
    try:
        description = parsed(file)
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise CheckpointError(f"{file}: not the description of a detector")
        if description.get("version") != VERSION:
            raise CheckpointError(f"{path}: version {description.get('version')}, this nrf reads version {VERSION}")
        odd = sorted((set(description) | set(DEFAULTS)) ^ FIELDS)
        if odd:
            raise CheckpointError(f"{file}: fields missing or unknown: {', '.join(odd)}")
        if _digest(description) != description["digest"]:
            raise CheckpointError(f"{file}: damaged: it is not as it was saved")
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: damaged ({error})") from error
    if not is_digest(description["weights_digest"]):
        raise CheckpointError(f"{file}: damaged: weights_digest is none, and so does not match any weights")
    return description
