"""The two figures of the sampler study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nrf.figures import INK, MUTED

COLOURS = ("#0b7285", "#d9822b", "#52606d", "#862e9c", "#b08900", "#2b8a3e", "#c92a2a", "#4dabf7")


def bands(curves: Mapping[str, tuple[Sequence[int], NDArray[np.floating]]], floor: float) -> Figure:
    """Mean and one standard deviation over runs for each method, and the floor."""
    figure = Figure(figsize=(9.5, 5), layout="constrained")
    axis = figure.subplots()
    for colour, (name, (x, y)) in zip(COLOURS, curves.items(), strict=False):
        mean, sd = y.mean(0), y.std(0, ddof=1) if len(y) > 1 else 0 * y.mean(0)
        dashed = "--" if "," in name else "-"
        axis.plot(x, mean, dashed, color=colour, label=name, linewidth=1.6)
        axis.fill_between(x, mean - sd, mean + sd, color=colour, alpha=0.2, linewidth=0)
    axis.axhline(floor, color=INK, linewidth=1, linestyle=":", label=f"perfect draws ({floor:.2f})")
    axis.set(yscale="log", xlabel="iteration", ylabel="KL of the fitted Gaussian to the truth")
    axis.grid(color=MUTED, linewidth=0.5, alpha=0.6, which="both")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def trade_off(points: Mapping[tuple[str, str], list[tuple[float, float]]], limit: float) -> Figure:
    """Effective samples against excess KL, one panel for exact gradients and one for Alg. 2's."""
    kinds = list(dict.fromkeys(kind for kind, _ in points))
    panels = list(dict.fromkeys(gradients for _, gradients in points))
    figure = Figure(figsize=(5.2 * len(panels), 4.2), layout="constrained")
    for axis, gradients in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for colour, kind in zip(COLOURS, kinds, strict=False):
            these = points[kind, gradients]
            axis.scatter(
                [1000 * ess for ess, _ in these],
                [max(excess, 0.02) for _, excess in these],
                s=22,
                color=colour,
                label=kind,
                alpha=0.85,
            )
        axis.axhline(limit, color=INK, linewidth=1, linestyle=":")
        axis.set(xscale="log", yscale="log", xlabel="effective samples per 1,000 gradients", ylabel="excess KL")
        axis.set_title(f"{gradients} gradients", fontsize=11, color=INK)
        axis.grid(color=MUTED, linewidth=0.5, alpha=0.6)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=9)
    return figure
