"""Learned log-densities compared with the true ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from nrf.figures.style import INK, PALETTE, RED, Array, framed_axis, open_axis

IN_A_ROW = 4
PINK = "#f783ac"
"""Colour of a tenth method."""
DEPTH = 8.0
"""Range of a map's colours, in nats below the highest true log-density."""


def calibration(pairs: Mapping[str, Mapping[str, tuple[Array, Array]]]) -> Figure:
    """One plot per density: the learned log-density of draws against the true one, with one colour per method.

    Args:
        pairs: ``density → method → (true, learned)``.
    """
    rows, across = math.ceil(len(pairs) / IN_A_ROW), min(IN_A_ROW, len(pairs))
    figure = Figure(figsize=(3.6 * across, 3.4 * rows + 0.4), layout="constrained")
    axes = list(figure.subplots(rows, across, squeeze=False).flat)
    names = dict.fromkeys(method for methods in pairs.values() for method in methods)
    colours = dict(zip(names, itertools.cycle((*PALETTE, INK, PINK)), strict=False))
    handles = {}
    for axis, (title, methods) in zip(axes, pairs.items(), strict=False):
        true = np.concatenate([x for x, _ in methods.values()])
        ends = np.quantile(true, [0.005, 1.0]) + np.array([-1.0, 1.0])
        for method, (x, y) in methods.items():
            handles[method] = axis.scatter(x, y, s=4, color=colours[method], linewidths=0, alpha=0.6)
        axis.plot(ends, ends, color=INK, linewidth=0.8)
        axis.set(xlim=ends, ylim=ends + np.array([-2.0, 1.0]), xlabel="true log-density", ylabel="learned")
        axis.set_title(title, fontsize=10, color=INK)
        open_axis(axis)
    for axis in axes[len(pairs) :]:
        axis.set_axis_off()
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=5, markerscale=3, frameon=False)
    return figure


def log_density_maps(maps: Mapping[str, Array], truth: str) -> Figure:
    """Maps of square arrays side by side, all with the colours of the true one.

    Args:
        maps: Square arrays by title; their first row is drawn at the bottom.
        truth: Title of the true log-density.
    """
    across = min(5, len(maps))
    rows = math.ceil(len(maps) / across)
    figure = Figure(figsize=(2.5 * across + 0.6, 2.7 * rows), layout="constrained")
    axes = list(figure.subplots(rows, across, squeeze=False).flat)
    high = float(maps[truth].max())
    for axis, (title, values) in zip(axes, maps.items(), strict=False):
        shading = axis.imshow(values, cmap="viridis", vmin=high - DEPTH, vmax=high, origin="lower")
        axis.set_title(title, fontsize=9, color=RED if title == truth else INK)
        framed_axis(axis)
    for axis in axes[len(maps) :]:
        axis.set_axis_off()
    figure.colorbar(shading, ax=axes, shrink=0.8, label="log-density, nats", extend="both")
    return figure
