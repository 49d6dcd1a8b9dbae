"""Models of a service: saved detectors by name, each replaced when its folder is."""

from __future__ import annotations

import datetime as dt
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nrf.detect import NRFDetector
from nrf.detect.card import model_card
from nrf.detect.explain import Explanation
from nrf.detect.rows import require_finite_rows
from nrf.detect.storage import DESCRIPTION
from nrf.detect.tables.frame import Frame
from nrf.detect.tables.whole import row_schema
from nrf.errors import InputError, NRFError
from nrf.fields import DetectionField
from nrf.serve.bodies import RowsReader
from nrf.serve.limits import Refused

Floats = NDArray[np.float64]
Encoded = NDArray[np.float32]
Stamp = tuple[int, int, int]
"""What distinguishes a replaced file from the one before: when it was written, its size, its inode."""

DEFAULT = "default"
log = logging.getLogger("nrf.serve")


@dataclass(frozen=True, eq=False)
class Served:
    """One model as it was loaded. A request keeps the model it began with."""

    name: str
    folder: Path
    detector: NRFDetector
    digest: str
    loaded_at: dt.datetime
    created: dt.datetime
    """When its folder was written."""
    reader: RowsReader
    card: str
    """The model card, in Markdown."""
    _score: Callable[[torch.Tensor], torch.Tensor] = field(repr=False)
    _steps: Floats = field(repr=False)
    """Scores at which the p-value increases."""

    @classmethod
    def load(cls, name: str, folder: Path) -> Served:
        """Read a saved detector of tables.

        Raises:
            NRFError: It cannot be read or served.
        """
        detector = NRFDetector.load(folder)
        schema = row_schema(detector)
        written = (folder / DESCRIPTION).stat().st_mtime
        fitted = detector.fitted_
        score = fitted.replicas.scorer()  # a copy of the networks, made once for all requests
        return cls(
            name=name,
            folder=folder,
            detector=detector,
            digest=_digest(folder),
            loaded_at=dt.datetime.now(dt.UTC),
            created=dt.datetime.fromtimestamp(written, dt.UTC),
            reader=RowsReader(schema, detector.file_columns_),
            card=model_card(detector),
            _score=score,
            _steps=detector.calibration_.scores - detector.calibration_.tolerance,
        )

    def scores(self, frame: Frame) -> tuple[Floats, Encoded]:
        """The scores (as ``score_samples``) of the rows of a frame that fits, and the encoded rows."""
        fitted = self.detector.fitted_
        rows = fitted.reader.encoded(frame)
        values = self._score(rows)
        require_finite_rows(torch.isfinite(values).all(0).cpu().numpy())
        return fitted.combined(values), rows.cpu().numpy()

    def log_density(self, frame: Frame) -> Floats | None:
        """The log-density of each row in nats; None if the field is not normalised."""
        fitted = self.detector.fitted_
        return fitted.log_density(frame) if fitted.replicas.has_density else None

    def p_values(self, scores: Floats) -> Floats:
        """Conformal p-values of scores."""
        # As `Calibration.p_values` computes them, but the array to look them up in is made once.
        found: Floats = (np.searchsorted(self._steps, scores, side="right") + 1) / (len(self._steps) + 1)
        return found

    def explain(self, table: Any) -> list[Explanation]:
        """Explanations of rows that fit, as an Arrow table."""
        return self.detector.explain(table)

    @property
    def field_kind(self) -> str:
        """Which field scores, as the parameter ``field`` names it."""
        found = self.detector.fitted_.replicas.module("potential")
        if not isinstance(found, DetectionField):
            return "inclusive"
        return "density" if found.neighbours is None else "product"


def _digest(folder: Path) -> str:
    """The digest of the weights, which distinguishes two models."""
    import json

    found: str = json.loads((folder / DESCRIPTION).read_text())["digest"]
    return found


@dataclass
class _Place:
    """A folder that is watched."""

    folder: Path
    stamp: Stamp | None
    served: Served | None
    problem: str | None = None
    """Why the present content of the folder is not served."""


@dataclass(eq=False)
class Models:
    """All models of a service.

    Args:
        single: Folder of the model with the name ``default``.
        folder: Folder whose subfolders are models, served by their names. A subfolder that is added later is served
            from then on.
        on_load: Called after each load with the name, and the problem if it failed.

    Raises:
        NRFError: A folder cannot be served when the service starts.
    """

    single: Path | None = None
    folder: Path | None = None
    on_load: Callable[[str, str | None], None] = lambda name, problem: None

    def __post_init__(self) -> None:
        if self.single is None and self.folder is None:
            raise InputError("give a model, or --models and a folder of models")
        if self.folder is not None and not self.folder.is_dir():
            raise InputError(f"{self.folder} is not a folder; give a folder of saved detectors")
        self._places: dict[str, _Place] = {}
        self._lock = threading.Lock()
        found = self._folders()
        if self.single is not None and self.folder is not None and (self.folder / DEFAULT / DESCRIPTION).is_file():
            raise InputError(f"{self.folder / DEFAULT} and {self.single} would both be called {DEFAULT!r}; rename one")
        for name, folder in found.items():
            stamp = _stamp(folder)
            self._places[name] = _Place(folder, stamp, Served.load(name, folder))
        if not self._places:
            raise InputError(f"{self.folder} has no saved detector; each of its subfolders may be one")

    def _folders(self) -> dict[str, Path]:
        found = {} if self.single is None else {DEFAULT: self.single}
        if self.folder is not None:
            with os.scandir(self.folder) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir())
            for name in names:
                if not name.startswith(".") and (self.folder / name / DESCRIPTION).is_file():
                    found.setdefault(name, self.folder / name)
        return found

    @property
    def served(self) -> dict[str, Served]:
        """The models by name, in alphabetical order."""
        return {name: place.served for name, place in sorted(self._places.items()) if place.served is not None}

    @property
    def problems(self) -> dict[str, str]:
        """Why a folder is not served as it is now, by name."""
        return {name: place.problem for name, place in sorted(self._places.items()) if place.problem is not None}

    def find(self, name: str | None) -> Served:
        """The model of a request.

        Raises:
            Refused: There is no model of that name, or there are several and the request names none.
        """
        if name is None:
            place = self._places.get(DEFAULT)
            if place is not None and place.served is not None:
                return place.served
            served = self.served
            if len(served) == 1:
                return next(iter(served.values()))
            raise Refused(422, f"there are several models; name one: model={' or model='.join(list(served)[:8])}")
        place = self._places.get(name)
        if place is None or place.served is None:
            raise Refused(404, "there is no model of that name; /models lists those there are")
        return place.served

    def refresh(self) -> None:
        """Load what has changed. A folder that cannot be read keeps its model, and the reason is kept with it."""
        with self._lock:
            for name, folder in self._folders().items():
                if name not in self._places:
                    self._places[name] = _Place(folder, None, None)
            for name, place in self._places.items():
                stamp = _stamp(place.folder)
                if stamp is None:
                    if place.problem is None:
                        self._failed(name, place, f"{place.folder} is gone; the model read from it is still served")
                        place.stamp = None
                elif stamp != place.stamp:
                    place.stamp = stamp
                    self._load(name, place)

    def _load(self, name: str, place: _Place) -> None:
        try:
            place.served = Served.load(name, place.folder)
        except Exception as error:  # whatever is wrong with a folder, it is reported and the others are served
            if not isinstance(error, NRFError | OSError | ValueError):
                log.exception("model %s failed to load", name)
            self._failed(name, place, str(error) or repr(error))
            return
        place.problem = None
        log.info("model %s loaded: %s", name, place.served.digest)
        self.on_load(name, None)

    def _failed(self, name: str, place: _Place, problem: str) -> None:
        place.problem = problem
        kept = "" if place.served is None else f"; {place.served.digest} is still served"
        log.error("model %s was not replaced: %s%s", name, problem, kept)
        self.on_load(name, problem)

    def describe(self) -> list[dict[str, Any]]:
        """The models as `/models` shows them."""
        return [
            {"name": name, "loaded_at": in_utc(model.loaded_at), "digest": model.digest}
            | ({"problem": self.problems[name]} if name in self.problems else {})
            for name, model in self.served.items()
        ]


def in_utc(time: dt.datetime) -> str:
    """A time as JSON writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _stamp(folder: Path) -> Stamp | None:
    try:
        found = (folder / DESCRIPTION).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
