"""A fitted detector as a directory: ``weights.safetensors`` and ``detector.json``. No pickle."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from nrf.config import from_json, to_json
from nrf.detect.calibration import FALSE_ALARM_RATE, Calibration, ThresholdRule
from nrf.detect.encoder import TableEncoder
from nrf.detect.features import from_stored, stored
from nrf.detect.files import FileColumns
from nrf.detect.members import Members
from nrf.detect.parameters import check_device
from nrf.detect.pixels import PixelScale
from nrf.detect.recipe import Recipe
from nrf.errors import CheckpointError, InputError
from nrf.training.checkpoint import versions, write_atomically

if TYPE_CHECKING:
    from nrf.detect.detector import NRFDetector

FORMAT, VERSION = "nrf-detector", 3
WEIGHTS, DESCRIPTION = "weights.safetensors", "detector.json"
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
NOT_STORED = ("features", "potential", "generator", "callbacks", "random_state", "verbose", "device")


def save(detector: NRFDetector, path: Path) -> None:
    """Write a fitted detector; an existing detector there is replaced, anything else is not."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(detector)
    if path.exists() and not (path.is_dir() and (not any(path.iterdir()) or (path / DESCRIPTION).is_file())):
        raise InputError(f"{path} exists and is no saved detector; choose another place")
    packed = detector.members_.packed()
    features, arrays = stored(detector.features_)
    tensors = {name: value.contiguous() for name, value in packed["tensors"].items()}
    tensors["calibration/scores"] = torch.from_numpy(detector.calibration_.scores)
    tensors["calibration/rows"] = detector._calibration_rows.cpu()
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
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / WEIGHTS, content)
    write_atomically(path / DESCRIPTION, (json.dumps(description, indent=1) + "\n").encode())


def load(path: Path, device: str = "cpu", **modules: Any) -> NRFDetector:
    """Read and check a saved detector.

    Args:
        path: Its directory.
        device: Where to compute.
        modules: ``potential`` and ``generator``, for a detector that was fitted with modules of the user's own.
    """
    from nrf.detect.detector import NRFDetector

    check_device(device)
    description, tensors = _read(path)
    wanted = description["custom_modules"]
    if set(modules) != set(wanted):
        raise InputError(
            f"{path} was fitted with {', '.join(wanted)} of your own: give them to load"
            if wanted
            else f"{path} has the default networks; leave out {', '.join(modules)}"
        )
    try:
        stored: dict[str, Any] = description["parameters"]
        parameters: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
        if parameters.get("contamination") is not None:  # earlier versions kept a rate beside it
            parameters["false_alarm_rate"] = None
        detector = NRFDetector(**parameters, **modules, device=device)
        detector.features_ = from_stored(description["features"], _group(tensors, "features/"), modules.get("features"))
        encoder, pixels = description["encoder"], description["pixels"]
        detector.encoder_ = None if encoder is None else TableEncoder.from_json(encoder)
        detector.pixels_ = None if pixels is None else from_json(PixelScale, pixels)
        if encoder is None and (pixels is None or detector.features_ is not None):
            raise InputError("it must have an encoder, or a range of pixels and no feature step")
        detector.recipe_ = from_json(Recipe, description["recipe"])
        packed: dict[str, Any] = description["members"] | {"tensors": tensors}
        packed["shape"] = tuple(packed["shape"])
        detector.members_ = Members.unpacked(
            packed, detector.recipe_, detector.potential, detector.generator, detector._surprises(), device
        )
        members = range(packed["count"])
        tolerances = tensors.get("calibration/tolerances", torch.zeros(1 + len(members))).tolist()  # none in 0.1.0
        detector.calibration_ = Calibration.of(tensors["calibration/scores"].numpy(), tolerances[0])
        detector._calibration_rows = tensors["calibration/rows"].to(device)
        detector._member_calibrations = [
            Calibration.of(tensors[f"calibration/member-{i}"].numpy(), tolerances[1 + i]) for i in members
        ]
        offset = description["offset"]
        detector.offset_ = -np.inf if offset is None else float(offset)
        detector.calibrated_on_ = description["calibrated_on"]
        detector.threshold_rule_ = _rule(detector, description["threshold_rule"])
        detector._split_seed = int(description["split_seed"])
        detector.n_features_in_ = int(description["n_features_in"])
        taken = description["n_iter"]
        detector.n_iter_ = (detector.recipe_.train.iterations or 0) if taken is None else int(taken)
        detector.health_, detector.history_ = description["health"], []
        if description["feature_names_in"] is not None:
            detector.feature_names_in_ = np.array(list(description["feature_names_in"]), dtype=object)
        if description["file_columns"] is not None:
            detector.file_columns_ = from_json(FileColumns, description["file_columns"])
    except (ArithmeticError, AttributeError, LookupError, TypeError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read by this version: {error}") from error
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
    return from_json(
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


def _group(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value.numpy() for name, value in tensors.items() if name.startswith(prefix)}


def _digest(description: dict[str, Any]) -> str:
    """Of everything but the digest itself, however it is laid out."""
    rest = {name: value for name, value in description.items() if name != "digest"}
    return hashlib.blake2b(json.dumps(rest, sort_keys=True).encode(), digest_size=16).hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    for name in (DESCRIPTION, WEIGHTS):
        if not (path / name).is_file():
            raise CheckpointError(f"{path} is no saved detector: it has no {name}")
    try:
        description = json.loads((path / DESCRIPTION).read_text())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise CheckpointError(f"{path / DESCRIPTION}: damaged ({error})") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise CheckpointError(f"{path / DESCRIPTION}: not the description of a detector")
    if description.get("version") != VERSION:
        raise CheckpointError(f"{path}: version {description.get('version')}, this nrf reads version {VERSION}")
    odd = sorted((set(description) | set(DEFAULTS)) ^ FIELDS)
    if odd:
        raise CheckpointError(f"{path / DESCRIPTION}: fields missing or unknown: {', '.join(odd)}")
    if _digest(description) != description["digest"]:
        raise CheckpointError(f"{path / DESCRIPTION}: damaged: it is not as it was saved")
    content = (path / WEIGHTS).read_bytes()
    if hashlib.blake2b(content, digest_size=16).hexdigest() != description["weights_digest"]:
        raise CheckpointError(f"{path / WEIGHTS}: damaged or of another detector: it does not match {DESCRIPTION}")
    try:
        return DEFAULTS | description, load_tensors(content)
    except SafetensorError as error:
        raise CheckpointError(f"{path / WEIGHTS}: damaged ({error})") from error
