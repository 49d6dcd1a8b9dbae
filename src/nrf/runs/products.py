"""Products of the fields of runs, saved in a folder: which runs, their weights, and the normaliser."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nrf.config import from_json, to_json
from nrf.errors import CheckpointError, InputError
from nrf.fields import Integral, ProductField, ReferenceMeasure, contributions, log_density
from nrf.fields.referenced import AnyReferenced
from nrf.fields.references import GaussianMeasure
from nrf.files import require_folder, write_atomically
from nrf.models import frozen
from nrf.networks import NoiseLevelPotential, Shape
from nrf.runs.trained import TrainedModel
from nrf.samplers import Sampler
from nrf.seeds import require_seed, stream

Array = NDArray[np.float32]

FORMAT = "nrf-product"
FILE = "product.json"
SPREAD_DRAWS = 4096


@dataclass(frozen=True)
class Expert:
    """The field of one run."""

    folder: Path
    """Its run folder."""
    weight: float
    """The power it is raised to."""
    averaged: bool = False
    """Whether to take the averaged weights."""
    replica: int = 0
    """Which model of a run with several replicas."""
    step: int | None = None
    """Which checkpoint. If not given, the newest one, which is then fixed."""


@dataclass(frozen=True)
class TrainedProduct:
    """``log p(x) = Σ_i w_i u_i(x) − log Z`` of the fields of runs, which must have seen rows in the same units.

    Attributes:
        experts: The runs.
        field: Their product.
        event_shape: Shape of one row.
        integral: Z by importance sampling, with a standard error; None where no expert has a reference to draw from,
            and the product is known up to a constant only.
    """

    experts: tuple[Expert, ...]
    field: ProductField
    event_shape: Shape
    integral: Integral | None

    @classmethod
    def of(cls, experts: Sequence[Expert], *, seed: int = 0, n_draws: int = 16_384) -> TrainedProduct:
        """Multiply the fields of runs, and normalise the product where that can be done.

        Draws come from the first reference among the experts (or from the Gaussian beside noise levels), half of them
        blurred by its own spread.

        Args:
            experts: At least one.
            seed: Seed of these draws.
            n_draws: Number of draws.

        Raises:
            InputError: The rows of the runs differ in shape, or the weights are not allowed.
            CheckpointError: A run cannot be read.
        """
        product = cls._read(experts)
        measures = (_measure_of(expert, product.event_shape) for expert in product.field.experts)
        measure = next((found for found in measures if found is not None), None)
        if measure is None:
            return product
        rng = stream(require_seed(seed), "product")
        spread = float(measure.sample(SPREAD_DRAWS, rng).flatten(1).std(0).max())
        found = product.field.normalise(measure, rng, n_draws=n_draws, sigmas=(0.0, spread))
        return cls(product.experts, product.field, product.event_shape, found)

    @classmethod
    def _read(cls, experts: Sequence[Expert]) -> TrainedProduct:
        models = [
            TrainedModel.load(one.folder, averaged=one.averaged, replica=one.replica, step=one.step) for one in experts
        ]
        shapes = {model.event_shape for model in models}
        if len(shapes) > 1:
            raise InputError(f"a product needs runs on rows of one shape, got {sorted(shapes)}")
        field = ProductField([model.potential for model in models], [one.weight for one in experts])
        pinned = tuple(
            Expert(one.folder, one.weight, one.averaged, one.replica, model.step)
            for one, model in zip(experts, models, strict=True)
        )
        return cls(pinned, field.eval(), models[0].event_shape, None)

    def save(self, folder: Path | str) -> None:
        """Write ``product.json``: the runs, by their places relative to this folder, the weights and Z.

        Weights of networks stay where they are, so the run folders must stay, with the checkpoints of these steps.

        Args:
            folder: Created if it does not exist.
        """
        folder = Path(folder)
        require_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
        experts = [to_json(one) | {"folder": os.path.relpath(one.folder, folder)} for one in self.experts]
        integral = None if self.integral is None else to_json(self.integral)
        record = {"format": FORMAT, "version": 1, "experts": experts, "integral": integral}
        write_atomically(folder / FILE, (json.dumps(record, indent=2) + "\n").encode())

    @classmethod
    def load(cls, folder: Path | str) -> TrainedProduct:
        """Read what :meth:`save` wrote.

        Args:
            folder: Folder of the product.

        Raises:
            CheckpointError: There is no product, or it or one of its runs cannot be read.
        """
        path = Path(folder) / FILE
        try:
            record: dict[str, Any] = json.loads(path.read_bytes())
            if record["format"] != FORMAT or record["version"] != 1:
                raise InputError(f"format {record['format']!r}, version {record['version']!r}")
            experts = [from_json(Expert, one) for one in record["experts"]]
            integral = None if record["integral"] is None else from_json(Integral, record["integral"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CheckpointError(f"{path}: holds no product of fields that this version can read: {error}") from error
        product = cls._read([Expert(**{**vars(one), "folder": Path(folder) / one.folder}) for one in experts])
        if integral is not None:
            product.field.set_normaliser(integral.log_value)
        return cls(product.experts, product.field, product.event_shape, integral)

    def score_samples(self, x: Array | Tensor) -> Array:
        """The potential of each row: high = normal."""
        with torch.no_grad(), frozen(self.field):
            return np.asarray(self.field(_rows(x)).numpy())

    def log_density(self, x: Array | Tensor) -> Array:
        """``log p(x)`` of each row in nats; an error where Z is not known."""
        return np.asarray(log_density(self.field, _rows(x)).numpy())

    def revise(self, x: Array | Tensor, sampler: Sampler, n_steps: int, *, seed: int = 0) -> Array:
        """Rows revised by steps of a sampler on the product."""
        rng = stream(require_seed(seed), "revise")
        return np.asarray(self.field.revise(_rows(x), sampler, n_steps, rng).numpy())

    def contributions(self, x: Array | Tensor, typical: Array | Tensor) -> Array:
        """How much each column adds to ``log p(x) − log p(typical)`` (:func:`nrf.fields.contributions`)."""
        return np.asarray(contributions(self.field, _rows(x), _rows(typical)).numpy())


def product_of(folders: Sequence[Path | str], weights: Sequence[float], *, averaged: bool = False) -> TrainedProduct:
    """The product of the fields of runs, normalised where that can be done.

    Args:
        folders: Run folders.
        weights: One for each; one half each multiplies two fields evenly.
        averaged: Take the averaged weights of all of them.
    """
    if len(folders) != len(weights):
        raise InputError(f"a product needs a weight for each run, got {len(folders)} runs and {len(weights)} weights")
    return TrainedProduct.of([Expert(Path(f), w, averaged) for f, w in zip(folders, weights, strict=True)])


def _measure_of(potential: torch.nn.Module, event_shape: Shape) -> ReferenceMeasure | None:
    """A reference that a field can be drawn from."""
    if isinstance(potential, AnyReferenced) and potential.measure.normalised:
        return potential.measure
    if not isinstance(potential, NoiseLevelPotential):
        return None
    measure = GaussianMeasure(event_shape, "full" if potential.reference.full else "diagonal")
    measure.gaussian = potential.reference
    return measure


def _rows(x: Array | Tensor) -> Tensor:
    given = x.detach().cpu() if isinstance(x, Tensor) else x
    return torch.from_numpy(np.ascontiguousarray(given, dtype=np.float32))
