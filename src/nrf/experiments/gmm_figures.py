"""The panels of the mixture figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nrf.experiments.figures import GENERATED, INK, MUTED, REVISED

Array = NDArray[np.floating]
COLOURS = {"generation": GENERATED, "revision": REVISED, "long chains": "#862e9c"}
LIMIT = 6.0


@dataclass(frozen=True)
class Panel:
    """A method's samples by kind, and its potential on a grid."""

    samples: Mapping[str, Array]
    grid: tuple[Array, Array, Array]


def method_panels(panels: Mapping[str, Panel], means: Array) -> Figure:
    """A column a kind of sample: the samples above, the potential they belong to below."""
    columns = [(name, kind, panel) for name, panel in panels.items() for kind in panel.samples]
    figure = Figure(figsize=(2.05 * len(columns), 4.6), layout="constrained")
    axes = figure.subplots(2, len(columns), squeeze=False)
    for above, below, (name, kind, panel) in zip(*axes, columns, strict=True):
        points = panel.samples[kind]
        above.scatter(points[:, 0], points[:, 1], s=1.5, c=COLOURS[kind], linewidths=0, alpha=0.8)
        above.set_title(f"{name.replace(', ', chr(10))}\n{kind}", fontsize=8, color=INK)
        xs, ys, u = panel.grid
        levels = np.linspace(np.quantile(u, 0.15), u.max() + 1e-6, 30)
        below.contourf(xs, ys, u, levels=levels, cmap="viridis", extend="min")
        below.scatter(means[:, 0], means[:, 1], s=2.5, c="#e03131", linewidths=0)
        for axis in (above, below):
            axis.set(xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT), aspect="equal", xticks=[], yticks=[])
            for spine in axis.spines.values():
                spine.set_color(MUTED)
    return figure
