"""The panels of the mixture figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nrf.figures import GENERATED, INK, MUTED, REVISED

Array = NDArray[np.floating]
COLOURS = {"generation": GENERATED, "revision": REVISED, "long chains": "#862e9c"}
LIMIT = 6.0
IN_A_BAND = 6
SIDE = 1.7
"""Of a panel, in inches."""


@dataclass(frozen=True)
class Panel:
    """A method's samples by kind, and its potential on a grid."""

    samples: Mapping[str, Array]
    grid: tuple[Array, Array, Array]


def method_panels(panels: Mapping[str, Panel], means: Array) -> Figure:
    """A column a kind of sample: the samples above, the potential they belong to below; in bands of a few columns."""
    columns = [(name, kind, panel) for name, panel in panels.items() for kind in panel.samples]
    across, bands = min(IN_A_BAND, len(columns)), math.ceil(len(columns) / IN_A_BAND)
    figure = Figure(figsize=(SIDE * across, (2 * SIDE + 0.5) * bands), layout="constrained")
    axes = figure.subplots(2 * bands, across, squeeze=False)
    for axis in axes[2 * bands - 2 :, (len(columns) - 1) % across + 1 :].flat:
        axis.set_axis_off()
    for i, (name, kind, panel) in enumerate(columns):
        band, place = divmod(i, across)
        above, below = axes[2 * band, place], axes[2 * band + 1, place]
        points = panel.samples[kind]
        above.scatter(points[:, 0], points[:, 1], s=1.5, c=COLOURS[kind], linewidths=0, alpha=0.8)
        above.set_title(f"{name.replace(', ', chr(10))}\n{kind}", fontsize=8, color=INK)
        xs, ys, u = panel.grid
        levels = np.linspace(np.quantile(u, 0.15), u.max() + 1e-6, 20)
        below.contourf(xs, ys, u, levels=levels, cmap="viridis", extend="min")
        below.scatter(means[:, 0], means[:, 1], s=2.5, c="#e03131", linewidths=0)
        for axis in (above, below):
            axis.set(xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT), aspect="equal", xticks=[], yticks=[])
            for spine in axis.spines.values():
                spine.set_color(MUTED)
    return figure
