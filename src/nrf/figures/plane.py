"""Points, paths and potentials in the plane."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from nrf.figures.style import DATA, GENERATED, INK, MUTED, PALETTE, RED, REVISED, VIOLET, Array, framed_axis

Grid = tuple[Array, Array, Array]
"""The two coordinates, and the potential at each grid point."""
KINDS = {"generation": GENERATED, "revision": REVISED, "long chains": VIOLET}
LIMIT = 6.0
IN_A_BAND = 6
SIDE = 1.7
"""Side of a small panel, in inches."""


def field_panels(clouds: Mapping[str, Array], field: str, grid: Grid, means: Array, subtitles: Sequence[str]) -> Figure:
    """Draw the panels of the paper's toy figure: the data, samples of several kinds, and the map of a field.

    Args:
        clouds: Training points and at most three kinds of samples, by title; colours go by their order.
        field: Title of the map.
        grid: Coordinates and values of the map.
        means: Centres of the modes, drawn in red on the map.
        subtitles: A line below each title.
    """
    n = len(clouds)
    figure = Figure(figsize=(3.8 * (n + 1), 4.2), layout="constrained")
    axes = figure.subplots(1, n + 1)
    for axis, cloud, colour in zip(axes[:n], clouds.values(), (DATA, GENERATED, REVISED, REVISED)[:n], strict=True):
        axis.scatter(cloud[:, 0], cloud[:, 1], s=4, c=colour, linewidths=0, alpha=0.75)
    shading = _potential_map(axes[n], grid, means, n_levels=40, size=1.5)
    figure.colorbar(shading, ax=axes[n], shrink=0.85, format="%.1f")
    limit = float(np.abs(next(iter(clouds.values()))).max()) * 1.12
    for axis, title, subtitle in zip(axes, (*clouds, field), subtitles, strict=True):
        axis.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
        axis.set_title(f"{title}\n", fontsize=12, color=INK, fontweight="bold")
        axis.text(0.5, 1.02, subtitle, transform=axis.transAxes, ha="center", fontsize=9, color=DATA)
        framed_axis(axis)
    return figure


@dataclass(frozen=True)
class Panel:
    """A method's samples by kind, and its potential on a grid.

    Args:
        samples: Points ``(n, 2)`` by kind.
        grid: The potential on a grid.
    """

    samples: Mapping[str, Array]
    grid: Grid


def method_panels(panels: Mapping[str, Panel], means: Array) -> Figure:
    """Draw one column per kind of sample: the samples above, the potential they belong to below.

    Args:
        panels: Samples and potential by method; columns are wrapped after a few.
        means: Centres of the modes, drawn in red on the potentials.
    """
    columns = [(name, kind, panel) for name, panel in panels.items() for kind in panel.samples]
    across, bands = min(IN_A_BAND, len(columns)), math.ceil(len(columns) / IN_A_BAND)
    figure = Figure(figsize=(SIDE * across, (2 * SIDE + 0.5) * bands), layout="constrained")
    axes = figure.subplots(2 * bands, across, squeeze=False)
    for axis in axes[2 * bands - 2 :, (len(columns) - 1) % across + 1 :].flat:
        axis.set_axis_off()
    for i, (name, kind, panel) in enumerate(columns):
        band, place = divmod(i, across)
        above, below = axes[2 * band, place], axes[2 * band + 1, place]
        cloud = panel.samples[kind]
        above.scatter(cloud[:, 0], cloud[:, 1], s=1.5, c=KINDS[kind], linewidths=0, alpha=0.8)
        above.set_title(f"{name.replace(', ', chr(10))}\n{kind}", fontsize=8, color=INK)
        _potential_map(below, panel.grid, means, n_levels=20, size=2.5)
        for axis in (above, below):
            axis.set(xlim=(-LIMIT, LIMIT), ylim=(-LIMIT, LIMIT), aspect="equal")
            framed_axis(axis)
    return figure


def _potential_map(axis: Any, grid: Grid, means: Array, n_levels: int, size: float) -> Any:
    """Draw a potential; far from the data it falls without bound, so the colours start at a quantile."""
    xs, ys, u = grid
    levels = np.linspace(np.quantile(u, 0.15), u.max() + 1e-6, n_levels)
    shading = axis.contourf(xs, ys, u, levels=levels, cmap="viridis", extend="min")
    axis.scatter(means[:, 0], means[:, 1], s=size, c=RED, linewidths=0)
    return shading


def points(clouds: Mapping[str, Array]) -> Figure:
    """Draw two-dimensional points in one plot.

    Args:
        clouds: Points ``(n, 2)`` by label.
    """
    figure, axis = _square()
    for colour, (label, cloud) in zip(PALETTE, clouds.items(), strict=False):
        axis.scatter(cloud[:, 0], cloud[:, 1], s=5, c=colour, linewidths=0, alpha=0.8, label=label)
    if len(clouds) > 1:
        axis.legend(fontsize=8, frameon=False)
    return figure


def paths(lines: Array, backdrop: Array) -> Figure:
    """Draw two-dimensional paths over a cloud of points.

    Args:
        lines: ``(paths, steps, 2)``.
        backdrop: The points, ``(n, 2)``.
    """
    figure, axis = _square()
    axis.scatter(backdrop[:, 0], backdrop[:, 1], s=4, c=MUTED, linewidths=0)
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(lines)))
    for line, colour in zip(lines, colours, strict=True):
        axis.plot(line[:, 0], line[:, 1], ".-", color=colour, linewidth=1, markersize=4)
    return figure


def _square() -> tuple[Figure, Any]:
    figure = Figure(figsize=(5, 5), layout="constrained")
    axis = figure.subplots()
    axis.set_aspect("equal")
    return figure, axis
