"""Bar charts, scatter plots and heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.figure import Figure

from nrf.figures.style import GENERATED, INK, MUTED, PALETTE, REVISED, Array, open_axis, row_of_axes

LONGEST_NAME = 32


class Explained(Protocol):
    """The part of an explanation that :func:`contribution_bars` draws."""

    @property
    def score(self) -> float: ...
    @property
    def p_value(self) -> float: ...
    @property
    def is_anomaly(self) -> bool: ...
    @property
    def contributions(self) -> Mapping[str, float]: ...
    @property
    def changes(self) -> Sequence[Any]: ...


def contribution_bars(explanation: Explained, title: str = "", most: int = 15) -> Figure:
    """Draw what each feature adds to a row's potential; bars to the left make the row less normal.

    Args:
        explanation: The explanation of a row.
        title: Text before the numbers above the plot.
        most: Largest number of bars; the features with the largest contributions are drawn.
    """
    changed = {change.feature for change in explanation.changes}
    ordered = sorted(explanation.contributions.items(), key=lambda item: (-abs(item[1]), item[0]))
    shown = sorted(ordered[:most], key=lambda item: item[1], reverse=True)
    figure = Figure(figsize=(7.0, 1.3 + 0.32 * max(len(shown), 1)), layout="constrained")
    axis = figure.subplots()
    names = [_short(name) for name, _ in shown]
    places = range(len(shown))
    axis.barh(places, [value for _, value in shown], color=[GENERATED if n in changed else MUTED for n, _ in shown])
    axis.set_yticks(places, names)
    axis.axvline(0, color=INK, linewidth=0.8)
    left_out = len(ordered) - len(shown)
    note = ("; orange has to change" if changed else "") + (f"; {left_out} smaller ones not shown" if left_out else "")
    axis.set_xlabel(f"contribution to the potential{note}", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.tick_params(axis="y", length=0)
    axis.spines[["top", "right", "left"]].set_visible(False)
    state = "anomaly" if explanation.is_anomaly else "normal"
    numbers = f"score {explanation.score:.4g} ({state}), p-value {explanation.p_value:.3g}"
    axis.set_title(f"{title}: {numbers}" if title else numbers, fontsize=10, color=INK, loc="left", parse_math=False)
    return figure


def _short(name: str) -> str:
    """A name that fits, with dollar signs escaped, so that matplotlib does not read formulas."""
    short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return short.replace("$", r"\$")


def grouped_bars(labels: Sequence[str], groups: Mapping[str, Sequence[float]], low: float, ylabel: str) -> Figure:
    """Draw a group of bars, side by side, for each label.

    Args:
        labels: One for each group of bars.
        groups: Heights of the bars by legend entry, one for each label.
        low: Lower end of the y axis; the upper end is 1.
        ylabel: Label of the y axis.
    """
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    axis = figure.subplots()
    width = 0.8 / len(groups)
    places = np.arange(len(labels))
    for i, (colour, (name, values)) in enumerate(zip((MUTED, REVISED, GENERATED), groups.items(), strict=False)):
        axis.bar(places + (i - (len(groups) - 1) / 2) * width, values, width, label=name, color=colour)
    axis.set_xticks(places, labels)
    axis.set_ylim(low, 1.0)
    axis.set_ylabel(ylabel)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=9, frameon=False, ncols=len(groups), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def heat_map(values: Array, rows: Sequence[str], columns: Sequence[str], label: str) -> Figure:
    """Draw a table of numbers from 0.5 to 1 as a heat map; smaller ones are darkest, the best of a row is bold.

    Args:
        values: The numbers, ``(rows, columns)``.
        rows: Names of the rows.
        columns: Names of the columns.
        label: Label of the colour bar.
    """
    figure = Figure(figsize=(0.78 * len(columns) + 2.4, 0.36 * len(rows) + 1.6), layout="constrained")
    axis = figure.subplots()
    shading = axis.imshow(values, cmap="viridis", vmin=0.5, vmax=1.0, aspect="auto")
    best = np.round(values, 3).max(1, keepdims=True)
    for (j, i), value in np.ndenumerate(values):
        colour = "white" if value < 0.8 else INK
        weight = "bold" if round(float(value), 3) >= best[j, 0] else "normal"
        axis.text(i, j, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour, fontweight=weight)
    axis.set_xticks(range(len(columns)), columns, rotation=35, ha="right", fontsize=9)
    axis.set_yticks(range(len(rows)), rows, fontsize=9)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    figure.colorbar(shading, ax=axis, shrink=0.8, label=label, extend="min")
    return figure


def trade_off(points: Mapping[tuple[str, str], list[tuple[float, float]]], limit: float) -> Figure:
    """Plot effective samples against excess KL, with one panel for exact gradients and one for Alg. 2's.

    Args:
        points: Pairs (effective samples per gradient, excess KL) by sampler and kind of gradients.
        limit: Excess KL at which a dotted line is drawn.
    """
    kinds = list(dict.fromkeys(kind for kind, _ in points))
    panels = list(dict.fromkeys(gradients for _, gradients in points))
    figure, axes = row_of_axes(len(panels), 5.2, 4.2)
    for axis, gradients in zip(axes, panels, strict=True):
        for colour, kind in zip(PALETTE, kinds, strict=False):
            these = points[kind, gradients]
            x, y = [1000 * ess for ess, _ in these], [max(excess, 0.02) for _, excess in these]
            axis.scatter(x, y, s=22, color=colour, label=kind, alpha=0.85)
        axis.axhline(limit, color=INK, linewidth=1, linestyle=":")
        axis.set(xscale="log", yscale="log", xlabel="effective samples per 1,000 gradients", ylabel="excess KL")
        axis.set_title(f"{gradients} gradients", fontsize=11, color=INK)
        open_axis(axis)
        axis.legend(frameon=False, fontsize=9)
    return figure
