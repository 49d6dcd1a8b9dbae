"""Curves over iterations, epochs and minutes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from nrf.figures.style import INK, MUTED, PALETTE, RED, REVISED, Array, open_axis, row_of_axes

Line = tuple[Sequence[float], Sequence[float]]
"""The x and y values of a line."""


def curves(
    series: Mapping[str, tuple[Sequence[float], Mapping[str, Sequence[float]]]],
    xlabel: str,
    *,
    log_x: bool = False,
    log_y: Sequence[str] = (),
) -> Figure:
    """Draw one small plot of lines per entry.

    Args:
        series: ``title → (x, {label: y})``.
        xlabel: Label of all x axes.
        log_x: Make all x axes logarithmic.
        log_y: Titles of the plots whose y axis is logarithmic.
    """
    figure, axes = row_of_axes(len(series), 4.4, 3.1)
    for axis, (title, (x, lines)) in zip(axes, series.items(), strict=True):
        for colour, (label, y) in zip(PALETTE, lines.items(), strict=False):
            axis.plot(x, y, label=label, color=colour, linewidth=1.4)
        axis.set_title(title, fontsize=11, color=INK)
        axis.set_xlabel(xlabel, fontsize=9)
        axis.set(xscale="log" if log_x else "linear", yscale="log" if title in log_y else "linear")
        open_axis(axis)
        axis.tick_params(labelsize=8)
        if len(lines) > 1:
            axis.legend(fontsize=8, frameon=False)
    return figure


def epochs(
    runs: Mapping[str, Sequence[Sequence[float]]],
    ylabel: str,
    *,
    mean: bool = False,
    ylim: tuple[float, float] | None = None,
) -> Figure:
    """Draw one plot per kind of run, with a thin line for each run: its value after every epoch.

    Args:
        runs: Values of each run, by kind.
        ylabel: Label of the y axis.
        mean: Draw a thick line for the mean over the runs, up to the end of the shortest.
        ylim: Limits of the y axis.
    """
    figure, axes = row_of_axes(len(runs), 3.4, 3.2, sharey=True)
    for axis, (title, lines) in zip(axes, runs.items(), strict=True):
        for values in lines:
            axis.plot(range(1, len(values) + 1), values, lw=0.7, alpha=0.6, color=INK)
        if mean:
            middle = np.mean([values[: min(map(len, lines))] for values in lines], axis=0)
            axis.plot(range(1, len(middle) + 1), middle, lw=2, color=REVISED)
        axis.set(xlabel="epoch", **({} if ylim is None else {"ylim": ylim}))
        axis.set_title(title, fontsize=8)
        axis.grid(color=MUTED, alpha=0.2)
    axes[0].set_ylabel(ylabel)
    return figure


def families(plots: Mapping[str, Mapping[str, Mapping[str, Line]]], xlabel: str, width: float = 5.2) -> Figure:
    """Draw one plot per metric, with one colour per method and solid and dashed lines for its two kinds.

    Args:
        plots: ``metric → method → kind → (x, y)``.
        xlabel: Label of all x axes.
        width: Width of each plot, in inches.
    """
    figure, axes = row_of_axes(len(plots), width, 3.6)
    for axis, (metric, methods) in zip(axes, plots.items(), strict=True):
        for colour, (method, kinds) in zip(PALETTE, methods.items(), strict=False):
            for style, (kind, (x, y)) in zip(("-", "--"), kinds.items(), strict=False):
                axis.plot(x, y, style, color=colour, lw=1.4, label=f"{method}: {kind}")
        axis.set(xlabel=xlabel, ylabel=metric)
        open_axis(axis)
    axes[0].legend(fontsize=7, frameon=False)
    return figure


def bands(runs: Mapping[str, tuple[Sequence[int], Array]], floor: float, ylabel: str) -> Figure:
    """Draw the mean and one standard deviation over runs for each method, and a floor.

    Args:
        runs: Iterations, and values ``(runs, iterations)``, by method; a method with a comma in its name is dashed.
        floor: The value of perfect draws, drawn as a dotted line.
        ylabel: Label of the y axis.
    """
    figure = Figure(figsize=(9.5, 5), layout="constrained")
    axis = figure.subplots()
    for colour, (name, (x, y)) in zip(PALETTE, runs.items(), strict=False):
        mean, sd = y.mean(0), y.std(0, ddof=1) if len(y) > 1 else 0 * y.mean(0)
        axis.plot(x, mean, "--" if "," in name else "-", color=colour, label=name, linewidth=1.6)
        axis.fill_between(x, mean - sd, mean + sd, color=colour, alpha=0.2, linewidth=0)
    axis.axhline(floor, color=INK, linewidth=1, linestyle=":", label=f"perfect draws ({floor:.2f})")
    axis.set(yscale="log", xlabel="iteration", ylabel=ylabel)
    open_axis(axis, which="both")
    axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def evidence(rows: Sequence[int], lines: Mapping[str, Sequence[float]], level: float, alarm: int | None) -> Figure:
    """Draw evidence of drift over the rows of a stream, as powers of ten, and where it raises an alarm.

    Args:
        rows: Row numbers.
        lines: Base-10 logarithms of the evidence at those rows, by name; the first line is thicker.
        level: An alarm is raised at 1/level.
        alarm: The row of the first alarm, if there was one.
    """
    figure = Figure(figsize=(8.5, 4), layout="constrained")
    axis = figure.subplots()
    for i, (colour, (name, values)) in enumerate(zip(PALETTE, lines.items(), strict=False)):
        axis.plot(rows, values, color=colour, lw=1.2 if i else 2.2, label=name)
    axis.axhline(-np.log10(level), color=RED, lw=1, ls="--", label=f"alarm at {1 / level:g}")
    if alarm is not None:
        axis.axvline(alarm, color=INK, lw=1, ls=":", label=f"first alarm, row {alarm}")
    axis.set(xlabel="rows", ylabel="evidence, power of ten")
    open_axis(axis)
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure
