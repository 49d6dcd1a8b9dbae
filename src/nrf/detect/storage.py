"""A fitted detector as a directory: ``detector.json`` and a file of weights. No pickle.

The weights have a name of their own for each content, ``weights-DIGEST.safetensors``, and ``detector.json``, which has
that digest, is replaced last, in one step. So at every moment, however a process ends, the folder holds the complete
former detector or the complete new one; and ``detector.json`` is the file to watch for a new one.

What is written and read is a :class:`~nrf.detect.fitted.Fitted`, with the parameters of the detector beside it. A field
that a file lacks has its default; an unknown field is an error that names it. Files of format 3 are read, too: they
have parameters under their old names, and version 0.1.0 wrote ``weights.safetensors``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from nrf.config import from_json, to_json
from nrf.detect.calibration import FALSE_ALARM_RATE, CalibratedOn, Calibration, ThresholdRule
from nrf.detect.features import from_stored, stored
from nrf.detect.fitted import Calibrated, Combine, Fitted, Provenance
from nrf.detect.old_names import PREFIX, renamed_parameters
from nrf.detect.parameters import check_device
from nrf.detect.pixels import PixelScale
from nrf.detect.replicas import Replicas
from nrf.detect.rows import RowReader
from nrf.detect.settings import Training
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
from nrf.fields import DetectionField
from nrf.files import write_atomically
from nrf.runs.spec import PairSpec

FORMAT, VERSION, OLDEST = "nrf-detector", 4, 3
WEIGHTS, DESCRIPTION = "weights.safetensors", "detector.json"
CARD, CARD_MARK = "card.md", "<!-- nrf model card -->"
"""File name of the model card of a detector, and the first line of every card."""
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
    "combine",
    "threshold_rule",
    "split_seed",
    "n_rows",
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
    "n_rows": None,
    "n_iter": None,
    "health": None,
    "file_columns": None,
    "combine": None,
}
"""Fields that a stored detector may lack, with their defaults; a field newer than the format's version belongs here."""
ATTEMPTS = 5
"""How many times a folder is read if it is replaced during reading."""
CUSTOM = ("potential", "generator", "features")
NOT_STORED = ("features", "potential", "generator", "callbacks", "random_state", "verbose", "device")


def save(fitted: Fitted, parameters: Mapping[str, Any], path: str | Path) -> None:
    """Write a fit and the parameters of its detector; an existing detector there is replaced, anything else is not.

    Calibration rows are stored only with the parameter ``keep_examples``. A field of neighbours always holds training
    rows, its anchors. A file with rows of either kind can be read by its owner only.
    """
    path = Path(path)
    if not is_free(path):
        raise InputError(f"{path} exists and is no saved detector; choose another place")
    content, text, digest = _packed(fitted, parameters)
    path.mkdir(parents=True, exist_ok=True)
    with _alone_in(path):
        weights = f"weights-{digest}.safetensors"
        write_atomically(path / weights, content, private=bool(parameters["keep_examples"]) or _holds_rows(fitted))
        write_atomically(path / DESCRIPTION, text)
        for other in path.iterdir():  # replaced files, and leftovers of killed saves
            if other.name != weights and _is_ours(other):
                with suppress(OSError):
                    other.unlink()


def _holds_rows(fitted: Fitted) -> bool:
    """Whether training rows are part of the field."""
    field = fitted.replicas.module("potential")
    return isinstance(field, DetectionField) and field.neighbours is not None


def is_free(path: str | Path) -> bool:
    """Whether a detector may be saved there: the place holds nothing, a detector, or the leftovers of a killed save."""
    path = Path(path)
    if not path.exists():
        return True
    if not path.is_dir():
        return False
    return (path / DESCRIPTION).is_file() or all(map(_is_ours, path.iterdir()))


def _is_ours(path: Path) -> bool:
    """Whether a file holds weights, is the card of a detector, or was being written."""
    if path.name == CARD:
        with suppress(OSError), path.open("rb") as file:
            return file.read(len(CARD_MARK)) == CARD_MARK.encode()
        return False
    if path.name == WEIGHTS:  # a name that other programs use too
        with suppress(OSError), path.open("rb") as file:
            return b'"calibration/scores"' in file.read(MOST_LOOKED_AT)
        return False
    digest = path.name.removeprefix("weights-").removesuffix(".safetensors")
    return path.name.startswith(".partial-") or (path.name == f"weights-{digest}.safetensors" and is_digest(digest))


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Let one process at a time save in a folder; others wait. However a process ends, the system releases its lock."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _packed(fitted: Fitted, parameters: Mapping[str, Any]) -> tuple[bytes, bytes, str]:
    """The contents of the two files of a fit, and the digest of the first."""
    packed, calibrated, reader = fitted.replicas.packed(), fitted.calibrated, fitted.reader
    features, arrays = stored(reader.features)
    tensors = {name: value.contiguous() for name, value in packed["tensors"].items()}
    tensors["calibration/scores"] = torch.from_numpy(calibrated.scores.scores)
    if parameters["keep_examples"] and calibrated.rows is not None:
        tensors["calibration/rows"] = calibrated.rows.cpu().contiguous()
    calibrations = [calibrated.scores, *calibrated.each]
    tensors["calibration/tolerances"] = torch.tensor([c.tolerance for c in calibrations], dtype=torch.float64)
    for i, calibration in enumerate(calibrated.each):
        tensors[f"calibration/member-{i}"] = torch.from_numpy(calibration.scores)
    tensors |= {f"features/{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}
    content = save_tensors(tensors)
    own = [name for name, module in zip(("potential", "generator"), fitted.own, strict=True) if module is not None]
    seed, threshold = parameters["random_state"], fitted.rule.threshold
    kept = {name: value for name, value in parameters.items() if name not in NOT_STORED}
    description = {
        "format": FORMAT,
        "version": VERSION,
        "versions": dict(fitted.provenance.versions),
        "parameters": {name: to_json(value) for name, value in kept.items()}
        | {"random_state": seed if isinstance(seed, int) else None},
        "custom_modules": own + (["features"] if features == "given" else []),
        "features": features,
        "combine": fitted.combine,
        "threshold_rule": {name: getattr(fitted.rule, name) for name in ("kind", "rate", "tolerance")},
        "split_seed": fitted.provenance.split_seed,
        "n_rows": fitted.provenance.n_rows,
        "encoder": None if reader.encoder is None else reader.encoder.to_json(),
        "pixels": None if reader.pixels is None else to_json(reader.pixels),
        "recipe": to_json(fitted.spec),
        "members": {"shape": list(packed["shape"]), "count": packed["count"]},
        "offset": threshold if np.isfinite(threshold) else None,
        "calibrated_on": calibrated.on,
        "n_iter": fitted.n_iter,
        "health": fitted.health,
        "n_features_in": fitted.n_features_in,
        "feature_names_in": None if fitted.feature_names_in is None else list(fitted.feature_names_in),
        "file_columns": to_json(fitted.provenance.file),
        "weights_digest": hashlib.blake2b(content, digest_size=16).hexdigest(),
    }
    description["digest"] = _digest(description)
    text = (json.dumps(description, indent=1, allow_nan=False) + "\n").encode()
    if len(text) > MOST_JSON:
        raise InputError(
            f"what is known of the columns takes {len(text)} bytes, more than can be stored; lower max_levels"
        )
    return content, text, description["weights_digest"]


def load(path: str | Path, device: str, modules: Mapping[str, Any]) -> tuple[Fitted, dict[str, Any]]:
    """Read and check a saved fit; returns it and the parameters of its detector, as they were stored.

    Args:
        path: Its directory.
        device: Where to compute.
        modules: ``potential``, ``generator`` and ``features``, for a detector that was fitted with some of the user's
            own.
    """
    path = Path(path)
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
    with refused(path):
        if description["version"] == 3:
            description |= {"parameters": _of_format_3(description["parameters"])}
        parameters = _parameters(description["parameters"])
        return _built(description, parameters, tensors, device, modules), parameters


@contextmanager
def refused(path: str | Path) -> Iterator[None]:
    """Turn any error in the content of a file into an error that names the file."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, RuntimeError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read by this version: {error}") from error


def _of_format_3(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters under their present names, with those of training in one object."""
    parameters = renamed_parameters(stored)
    names = [name for name in parameters if name.startswith(PREFIX)]
    settings = {name.removeprefix(PREFIX): parameters.pop(name) for name in names}
    return parameters | {"training": {"type": "Training", **settings}}


def _parameters(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of the detector."""
    parameters: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
    odd = sorted(set(parameters) & set(NOT_STORED) - {"random_state"})
    if odd:
        raise InputError(f"there are parameters that are never stored: {', '.join(odd)}")
    if stored.get("random_state") is not None:
        whole(stored, "random_state")
    if stored.get("training") is not None:
        parameters["training"] = from_json(Training, stored["training"], "training")
    parameters.setdefault("scaling", "quartiles")  # the scaling before it could be chosen
    if parameters.get("contamination") is not None:  # earlier versions also kept a rate
        parameters["false_alarm_rate"] = None
    return parameters


def _built(
    description: dict[str, Any],
    parameters: Mapping[str, Any],
    tensors: dict[str, torch.Tensor],
    device: str,
    modules: Mapping[str, Any],
) -> Fitted:
    """Build the fit; its parts are checked before the networks are built."""
    check_plain(description)
    check_finite(tensors)
    step = from_stored(description["features"], _group(tensors, "features/"), modules.get("features"))
    encoder = None if description["encoder"] is None else Schema.from_json(description["encoder"])
    pixels = None if description["pixels"] is None else from_json(PixelScale, description["pixels"])
    if encoder is None and (pixels is None or step is not None):
        raise InputError("it must have an encoder, or a range of pixels and no feature step")
    reader = RowReader(encoder, pixels, step, device)
    spec = from_json(PairSpec, description["recipe"])
    own = modules.get("potential"), modules.get("generator")
    check_sizes(encoder, spec, own, tensors)
    check_columns(encoder, pixels, step, description["n_features_in"])
    shape, count = members_shape(description["members"], encoder, pixels, tensors)
    check_tensors(tensors, spec, shape, count, own, encoder)
    networks = {k: v for k, v in tensors.items() if not k.startswith(("calibration/", "features/"))}
    packed = {"shape": shape, "count": count, "tensors": networks}
    replicas = Replicas.unpacked(packed, spec, *own, reader.novelty_columns, device)
    check_potential(replicas, encoder)
    calibrated = _calibrated(tensors, count, description["calibrated_on"], device)
    names, file, n_iter = (description[name] for name in ("feature_names_in", "file_columns", "n_iter"))
    return Fitted(
        reader=reader,
        replicas=replicas,
        spec=spec,
        combine=_combine(description["combine"] or parameters.get("combine", "potential")),
        calibrated=calibrated,
        rule=_rule(description, calibrated, parameters),
        n_features_in=description["n_features_in"],
        feature_names_in=None if names is None else tuple(names),
        own=own,
        n_iter=(spec.train.iterations or 0) if n_iter is None else whole(description, "n_iter"),
        health=description["health"],
        provenance=Provenance(
            description["versions"],
            description["split_seed"],
            FileColumns() if file is None else from_json(FileColumns, file, "file_columns"),
            None if description["n_rows"] is None else whole(description, "n_rows", 1),
        ),
    )


def _combine(value: Any) -> Combine:
    if value not in get_args(Combine):
        raise InputError(f"combine must be 'potential' or 'rank', got {value!r}")
    found: Combine = value
    return found


def _calibrated(tensors: Mapping[str, torch.Tensor], count: int, on: CalibratedOn, device: str) -> Calibrated:
    tolerances = tensors.get("calibration/tolerances", torch.zeros(1 + count)).tolist()  # none in 0.1.0
    each = (Calibration.of(tensors[f"calibration/member-{i}"].numpy(), tolerances[1 + i]) for i in range(count))
    rows = tensors.get("calibration/rows")
    scores = Calibration.of(tensors["calibration/scores"].numpy(), tolerances[0])
    return Calibrated(scores, tuple(each), on, None if rows is None else rows.to(device))


def _rule(description: Mapping[str, Any], calibrated: Calibrated, parameters: Mapping[str, Any]) -> ThresholdRule:
    """The rule as stored; earlier versions kept only its threshold, from which the parameters give most of the rule."""
    offset, given, scores = description["offset"], description["threshold_rule"], calibrated.scores.scores
    threshold = -np.inf if offset is None else float(offset)
    if given is None:
        rate = parameters.get("false_alarm_rate")
        given = {"kind": "false_alarm_rate", "rate": FALSE_ALARM_RATE if rate is None else rate}
        if parameters.get("contamination") is not None:
            given = {"kind": "contamination", "rate": parameters["contamination"]}
        elif threshold != calibrated.scores.threshold(given["rate"]):  # set after the fit: find the rate that it keeps
            below = int(np.searchsorted(scores, threshold, side="left"))
            given["rate"] = (below + 1) / (len(scores) + 1)
    rule = from_json(
        ThresholdRule,
        {
            "type": "ThresholdRule",
            **given,
            "threshold": threshold,
            "n_calibration": len(scores),
            "calibrated_on": calibrated.on,
        },
        "threshold_rule",
    )
    if not 0 < rule.rate <= (0.5 if rule.kind == "contamination" else 1):
        raise InputError(f"the rate of the threshold is {rule.rate:g}, which is not a valid rate")
    return rule


def _group(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value.numpy() for name, value in tensors.items() if name.startswith(prefix)}


def _digest(description: dict[str, Any]) -> str:
    """The digest of everything but itself, however the JSON is laid out."""
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
        if not path.exists():
            raise CheckpointError(f"{path} is no saved detector: it does not exist; give the folder it was saved in")
        killed = path.is_dir() and any(path.iterdir()) and is_free(path)
        why = "; a save was interrupted, save again" if killed else ""
        raise CheckpointError(f"{path} is no saved detector: it has no {DESCRIPTION}{why}")
    try:
        description = parsed(file)
        if not isinstance(description, dict) or description.get("format") != FORMAT:
            raise CheckpointError(f"{file}: not the description of a detector")
        if description.get("version") not in range(OLDEST, VERSION + 1):
            known = f"{OLDEST} to {VERSION}"
            raise CheckpointError(f"{path}: version {description.get('version')}, this nrf reads versions {known}")
        odd = sorted((set(description) | set(DEFAULTS)) ^ FIELDS)
        if odd:
            raise CheckpointError(f"{file}: fields missing or unknown: {', '.join(odd)}")
        if _digest(description) != description["digest"]:
            raise CheckpointError(f"{file}: damaged: it is not as it was saved")
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: damaged ({error})") from error
    if not is_digest(description["weights_digest"]):
        raise CheckpointError(f"{file}: damaged: weights_digest is not a digest, so it does not match any weights")
    return description
