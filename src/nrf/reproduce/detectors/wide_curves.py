"""Short and wide tables: each row is a smooth curve, and there are fewer rows than columns. Generated.

Half of the anomalies have another shape, half are the family's own curves moved along.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nrf.errors import InputError
from nrf.reproduce.detectors.sets import Floats, Task
from nrf.seeds import derive

N_TESTED = 100
"""Normal curves, and as many anomalies."""
NOISE = 0.01

Curves = Callable[[Floats, int, np.random.Generator, float], Floats]
"""From the axis, a number of curves, and how far they are moved."""


def _bump(axis: Floats, centre: Floats, width: Floats | float) -> Floats:
    return np.exp(-(((axis - centre) / width) ** 2) / 2)


def _spectra(axis: Floats, n: int, rng: np.random.Generator, shift: float) -> Floats:
    """Two substances of three peaks each, in random amounts, over a sloping ground."""
    centres, widths = (
        np.array([[0.2, 0.45, 0.7], [0.3, 0.52, 0.85]]),
        np.array([[0.03, 0.05, 0.04], [0.04, 0.03, 0.05]]),
    )
    heights = np.array([[1.0, 0.6, 0.8], [0.7, 1.0, 0.5]])
    place = shift + rng.normal(0, 0.002, (n, 1))
    amounts = rng.lognormal(0, 0.3, (n, 2))
    rows = rng.uniform(0, 0.3, (n, 1)) * axis
    for k in range(2):
        for centre, width, height in zip(centres[k], widths[k], heights[k], strict=True):
            rows = rows + amounts[:, k : k + 1] * height * _bump(axis, centre + place, width)
    return rows


def _one_peak_more(axis: Floats, n: int, rng: np.random.Generator, shift: float) -> Floats:
    """The same with a small peak of a third substance."""
    centre, height = rng.uniform(0.1, 0.9, (n, 1)), rng.uniform(0.1, 0.3, (n, 1))
    return _spectra(axis, n, rng, shift) + height * _bump(axis, centre, 0.02)


def _days(axis: Floats, n: int, rng: np.random.Generator, shift: float) -> Floats:
    """Loads of a day: a morning and an evening of random height, on working days and on days off."""
    off = rng.random((n, 1)) < 0.3
    place = shift + rng.normal(0, 0.004, (n, 1))
    morning = rng.lognormal(0, 0.2, (n, 1)) * _bump(axis, np.where(off, 0.42, 0.33) + place, np.where(off, 0.1, 0.06))
    evening = rng.lognormal(0, 0.2, (n, 1)) * _bump(axis, np.where(off, 0.75, 0.79) + place, 0.08)
    return morning + evening + rng.normal(0.4, 0.05, (n, 1))


def _flat_days(axis: Floats, n: int, rng: np.random.Generator, shift: float) -> Floats:
    """The same with a noon as high as half the evening."""
    return _days(axis, n, rng, shift) + rng.uniform(0.2, 0.5, (n, 1)) * _bump(axis, np.full((n, 1), 0.57), 0.05)


CURVES: dict[str, tuple[int, int, Curves, Curves, float]] = {
    "spectra, 48 × 251": (48, 251, _spectra, _one_peak_more, 0.012),
    "days, 70 × 150": (70, 150, _days, _flat_days, 0.025),
}
"""Rows, columns, the family, another shape, and how far the other anomalies are moved, to either side."""


def curves_task(name: str, seed: int) -> Task:
    """Curves to train on, others of the family, and anomalies."""
    if name not in CURVES:
        raise InputError(f"unknown table of curves {name!r}; there are {', '.join(CURVES)}")
    n, columns, family, other, far = CURVES[name]
    rng, axis = np.random.default_rng(derive(seed, "curves", name)), np.linspace(0, 1, columns)
    normal = family(axis, n + N_TESTED, rng, 0.0)
    quarter = N_TESTED // 4
    moved = [family(axis, quarter, rng, sign * far) for sign in (-1, 1)]
    anomalies = np.concatenate([other(axis, N_TESTED - 2 * quarter, rng, 0.0), *moved])
    normal, anomalies = (rows + rng.normal(0, NOISE, rows.shape) for rows in (normal, anomalies))
    return Task(name, normal[:n], normal[n:], anomalies)
