"""What the detector trains by default: networks, sampler, learner and length of training, sized from the data.

The values were chosen on held-out normal rows against synthetic anomalies made from them (columns shuffled, noise
added, uniform draws, rows moved outwards or apart), over data sets that come with scikit-learn or are generated: see
docs/detection.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from nrf.errors import InputError
from nrf.fields import Detection, MixtureReference, Neighbours, PairTree
from nrf.learners import InclusiveConfig, LevelsConfig, Revision
from nrf.networks import (
    LevelsMLPPotential,
    MLPGenerator,
    MLPPotential,
    OneClassCNNGenerator,
    OneClassCNNPotential,
    Shape,
    StandardCNNGenerator,
    StandardCNNPotential,
)
from nrf.runs.spec import GeneratorChoice, PairSpec, PotentialChoice
from nrf.samplers import SGLD, Sampler
from nrf.training import TrainConfig

ColumnField = Literal["product", "density"]
"""Fields for tables that are learned without a sampler."""
CONFINEMENT = 3.0
"""In units of the scaled columns: beyond this, far outside the training data, the potential falls in any case."""
SMOOTHING = 0.9
"""Noise on training rows, in distances between neighbours: no more than a table of that many rows could resolve."""
LEAST_NOISE = 0.06
"""The minimum of that noise, in units of the scaled columns."""
MANY_ROWS = 100_000
"""Rows from which on batches are larger, training is longer, rates are lower, the sampler's steps fall and weights are
averaged."""
AVERAGED = 0.995
"""With many rows: how much of the averaged weights is kept at each iteration. They average over some 200 iterations."""
LINE = 10
"""Minimum number of iterations between two lines of metrics: with fewer, the guard reacts to chance."""
FEWEST_ANCHORS, MOST_ANCHORS, ANCHOR_CELLS = 1000, 10_000, 120_000
"""Least and greatest number of anchors of a field of neighbours, and that number times the number of columns."""
NETWORK_LINE = 50
"""Iterations between two lines of metrics for a network around a mixture."""
OF_DENSITIES = ("widths", "learning_rate", "batch_size", "iterations")
"""Settings of training that also apply to a network around a mixture."""
SPACING_ROWS = 500
SPACING_AMONG = 20_000


def spacing_of(rows: Tensor) -> float:
    """How far apart rows are: the median distance to the nearest other row, over the root of the number of columns."""
    among = rows[:SPACING_AMONG].flatten(1)
    chosen = among[:SPACING_ROWS]
    distances = torch.cdist(chosen, among)
    distances[torch.arange(len(chosen)), torch.arange(len(chosen))] = math.inf
    return float(distances.amin(1).median()) / math.sqrt(among.shape[1])


def field_spec(
    field: ColumnField,
    n_rows: int,
    columns: int,
    changes: dict[str, Any],
    units: Sequence[float] = (),
    pairs: PairTree | None = None,
) -> PairSpec:
    """The default spec of the detector's own field for a table of this size, with some of its values given.

    Args:
        field: Neighbours and density, or the density alone.
        n_rows: Training rows.
        columns: Columns of the table, however many outputs encode them.
        changes: ``widths``, ``learning_rate``, ``batch_size`` or ``iterations`` in place of the default; None stands
            for the default.
        units: What each encoded column is multiplied by, where they are not all 1.
        pairs: The tree of pairs of columns, where there is one; the density alone has none.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    odd = sorted(set(given) - set(OF_DENSITIES))
    if odd:
        raise InputError(f"{', '.join(odd)} belong to field='inclusive'; give that, too, or leave them out")
    batch = min(given.get("batch_size", 128), n_rows)
    iterations = given.get("iterations", 0)
    line = max(1, min(NETWORK_LINE, iterations))
    return PairSpec(
        potential=Detection(
            network=LevelsMLPPotential(
                widths=given.get("widths", (64, 64)), n_levels=8, sigma_min=0.1, sigma_max=3.0, covariance="full"
            ),
            reference=MixtureReference(ridge=0.02),
            neighbours=Neighbours(max_anchors=n_anchors(columns)) if field == "product" else None,
            units=tuple(units),
            pairs=pairs if field == "product" else None,
        ),
        generator=MLPGenerator(latent_dim=1, widths=(1,)),  # none is trained
        sampler=SGLD(step_size=0.01),
        revision=Revision(n_steps=20, target="x"),
        learner=LevelsConfig(potential_lr=given.get("learning_rate", 5e-3)),
        train=TrainConfig(
            batch_size=batch,
            iterations=iterations,
            lr_final=0.0,
            log_every=line,
            checkpoint_every=line,
            guard=True,
            ema_decay=0.98,
            compile="never",
        ),
    )


def n_anchors(columns: int) -> int:
    """Maximum number of rows among which neighbours are searched: fewer with many columns, so that scoring stays fast.

    Example:
        >>> [n_anchors(columns) for columns in (5, 20, 120, 1000)]
        [10000, 6000, 1000, 1000]
    """
    return max(FEWEST_ANCHORS, min(MOST_ANCHORS, ANCHOR_CELLS // columns))


def spec_for(n_rows: int, shape: Shape, changes: dict[str, Any], spacing: float = 0.0) -> PairSpec:
    """The default spec of an inclusive field for so many rows of that shape, with some of its values given.

    Args:
        n_rows: Training rows.
        shape: ``(columns,)`` after encoding, or ``(channels, height, width)``.
        changes: ``widths``, ``latent_dim``, ``sigma``, ``n_steps``, ``step_size``, ``temperature``, ``learning_rate``,
            ``first_step_size``, ``batch_size`` or ``iterations`` in place of the default; None stands for the default.
        spacing: How far apart rows are, see :func:`spacing_of`.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    noise = max(LEAST_NOISE, SMOOTHING * spacing)
    spec = _images(shape, noise) if len(shape) == 3 else _table(shape[0], noise)
    if n_rows > MANY_ROWS and len(shape) == 1:
        spec = _large_table_defaults(spec)
    batch = min(given.pop("batch_size", _batch(n_rows)), n_rows)
    iterations = given.pop("iterations", _iterations(n_rows, batch))
    train = TrainConfig(
        batch_size=batch,
        iterations=iterations,
        lr_final=0.05,
        log_every=max(LINE, n_rows // batch),
        checkpoint_every=max(LINE, n_rows // batch),
        guard=True,
        ema_decay=AVERAGED if n_rows > MANY_ROWS and len(shape) == 1 else None,
        compile="never",
    )
    return _with(replace(spec, train=train), given)


def _table(columns: int, noise: float) -> PairSpec:
    """Perceptrons, and a sampler whose step fits the noise.

    A step δ is stable where rows vary by more than √(2δ); data without a density at that scale make the potential grow
    without bound.
    """
    return PairSpec(
        # Half as wide misses how categories depend on each other.
        potential=MLPPotential(widths=(256, 128), data_init=True, confinement=CONFINEMENT),
        # Noise as wide as the data: it is what makes the potential fall beside them, in every direction.
        generator=MLPGenerator(latent_dim=min(columns, 10), widths=(64, 64), activation="softplus", sigma=1.0),
        sampler=SGLD(step_size=noise**2 / 2),
        # Half as many work as well on most tables; but where columns depend on each other, or are many, proposals this
        # wide do not reach the rows, and the potential falls at the samples instead of beside the rows.
        revision=Revision(n_steps=20, target="x"),
        learner=InclusiveConfig(
            betas=(0.0, 0.9), potential_lr=5e-3, generator_lr=2e-3, control_weight=0.1, data_noise=noise
        ),
        train=TrainConfig(iterations=1),
    )


def _large_table_defaults(spec: PairSpec) -> PairSpec:
    """For many rows: half the widths, a lower rate, and steps that fall to a fifth in the course of a revision.

    Where the potential has become four times as steep as the noise would make it, constant steps throw samples back and
    forth, the potential learns from where they land, and gets steeper still.
    """
    return replace(
        spec,
        # With so many rows it is as good, and a million rows should be scored in a second.
        potential=MLPPotential(widths=(128, 64), data_init=True, confinement=CONFINEMENT),
        sampler=replace(spec.sampler, decay=(5.0, 1.0)),
        learner=replace(spec.learner, potential_lr=2e-3),
    )


def _images(shape: Shape, noise: float) -> PairSpec:
    """Images in [−1, 1]: the convolutional pair that takes them, or the perceptrons."""
    channels, height, width = shape
    if height != width or height % 8:
        flat = _table(channels * height * width, noise)
        return replace(flat, sampler=replace(flat.sampler, box=(-1.0, 1.0)))
    potential: PotentialChoice = StandardCNNPotential(norm="weight")
    generator: GeneratorChoice = StandardCNNGenerator(sigma=0.1)
    if (height, channels) == (32, 3):
        potential, generator = OneClassCNNPotential(data_init=True), OneClassCNNGenerator(sigma=0.1)
    return PairSpec(
        potential=potential,
        generator=generator,
        sampler=SGLD(step_size=0.003, box=(-1.0, 1.0)),
        revision=Revision(n_steps=10, target="x"),
        learner=InclusiveConfig(betas=(0.0, 0.9), control_weight=0.1),
        train=TrainConfig(iterations=1),
    )


def _batch(n_rows: int) -> int:
    """The batch size: an eighth of few rows, 128 of many; more where an epoch would be long."""
    if n_rows > MANY_ROWS:
        return 512
    return int(min(128, max(32, 2 ** round(math.log2(max(n_rows, 8) / 8)))))


def _iterations(n_rows: int, batch: int) -> int:
    """The number of iterations: proportional to few rows, 3,000 for more, 5,000 for many, and at least one epoch."""
    most = 5000 if n_rows > MANY_ROWS else 3000
    return max(min(most, max(400, 3 * n_rows)), math.ceil(n_rows / batch))


def _with(spec: PairSpec, given: dict[str, Any]) -> PairSpec:
    """The spec with the given values in place of its own."""
    places = {
        "widths": "potential",
        "latent_dim": "generator",
        "sigma": "generator",
        "n_steps": "revision",
        "step_size": "sampler",
        "temperature": "sampler",
    }
    rate = given.pop("learning_rate", None)
    if rate is not None:
        spec = replace(spec, learner=replace(spec.learner, potential_lr=rate, generator_lr=rate))
    first = given.pop("first_step_size", None)
    if "widths" in given and not isinstance(spec.potential, MLPPotential):
        raise InputError("widths are those of perceptrons; images of this shape get a convolutional pair")
    for name, value in given.items():
        part: Any = getattr(spec, places[name])
        spec = replace(spec, **{places[name]: replace(part, **{name: value})})
    if first is None:
        return spec
    if "step_size" not in given and first > 0:  # rows are so far apart that their own step is larger: no fall
        first = max(first, spec.sampler.step_size)
    return replace(spec, sampler=falling(spec.sampler, first, spec.revision.n_steps))


def falling(sampler: Sampler, first: float, n_steps: int) -> Sampler:
    """The sampler with steps that fall from the first size to its own in so many steps, nearly by a constant factor.

    Example:
        >>> steps = falling(SGLD(step_size=0.002), 0.05, 20)
        >>> [round(steps.step_sizes(l, 1)[0], 4) for l in (0, 10, 19)]
        [0.05, 0.0071, 0.002]
    """
    if not first >= sampler.step_size:
        raise InputError(f"first_step_size must be at least step_size, {sampler.step_size:g}, got {first:g}")
    if n_steps < 2:
        raise InputError("first_step_size is for revisions of two steps or more; leave it out, or raise n_steps")
    power = math.log(first / sampler.step_size) / math.log(1 + (n_steps - 1) / n_steps)
    return replace(sampler, step_size=first, decay=(float(n_steps), power))
