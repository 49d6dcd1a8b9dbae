"""Pictures, each a function from arrays to a matplotlib figure."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.data import DATASETS
from nrf.errors import InputError, needs
from nrf.files import replaced

with needs("figures", "a picture"):
    import matplotlib
    from matplotlib.figure import Figure

Array = NDArray[np.floating]

INK, DATA, GENERATED, REVISED, MUTED = "#1f2933", "#52606d", "#d9822b", "#0b7285", "#cbd2d9"


def save(figure: Figure, path: Path | str) -> None:
    """Write a PNG."""
    with replaced(Path(path)) as partial:
        figure.savefig(partial, dpi=130, bbox_inches="tight")


def as_data_uri(figure: Figure) -> str:
    """A PNG as text, for a page that needs no other file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, bbox_inches="tight")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def field_panels(
    data: Array,
    generated: Array,
    revised: Array,
    grid: tuple[Array, Array, Array],
    means: Array,
    subtitles: Sequence[str],
) -> Figure:
    """The panels of the paper's toy figure: data, generation, revision, and the map of the potential.

    Args:
        data: Training points.
        generated: The generator's samples.
        revised: The revised ones.
        grid: Coordinates and potential, for the map.
        means: Centres of the modes, drawn in red on the map.
        subtitles: A line below each title.
    """
    figure = Figure(figsize=(15.2, 4.2), layout="constrained")
    axes = figure.subplots(1, 4)
    titles = ("Training data", "Generation", "Revision", "Potential u(x)")
    clouds = zip(axes, (data, generated, revised), (DATA, GENERATED, REVISED), strict=False)
    for axis, points, colour in clouds:
        axis.scatter(points[:, 0], points[:, 1], s=4, c=colour, linewidths=0, alpha=0.75)
    xs, ys, u = grid
    # Far from the data u falls without bound; the map is about the modes, so its colours start at a quantile.
    levels = np.linspace(np.quantile(u, 0.15), u.max(), 40)
    shading = axes[3].contourf(xs, ys, u, levels=levels, cmap="viridis", extend="min")
    axes[3].scatter(means[:, 0], means[:, 1], s=7, c="#e03131", linewidths=0)
    figure.colorbar(shading, ax=axes[3], shrink=0.85, format="%.1f")
    limit = float(np.abs(data).max()) * 1.12
    for axis, title, subtitle in zip(axes, titles, subtitles, strict=True):
        axis.set(xlim=(-limit, limit), ylim=(-limit, limit), aspect="equal")
        axis.set_title(f"{title}\n", fontsize=12, color=INK, fontweight="bold")
        axis.text(0.5, 1.02, subtitle, transform=axis.transAxes, ha="center", fontsize=9, color=DATA)
        _quiet(axis)
    return figure


def curves(series: Mapping[str, tuple[Sequence[float], Mapping[str, Sequence[float]]]], xlabel: str) -> Figure:
    """One small plot for each entry: ``title → (x, {label: y})``."""
    figure = Figure(figsize=(4.4 * len(series), 3.1), layout="constrained")
    palette = (REVISED, GENERATED, DATA, "#862e9c")
    for axis, (title, (x, lines)) in zip(
        figure.subplots(1, len(series), squeeze=False)[0], series.items(), strict=True
    ):
        for colour, (label, y) in zip(palette, lines.items(), strict=False):
            axis.plot(x, y, label=label, color=colour, linewidth=1.4)
        axis.set_title(title, fontsize=11, color=INK)
        axis.set_xlabel(xlabel, fontsize=9)
        axis.grid(color=MUTED, linewidth=0.5, alpha=0.6)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        if len(lines) > 1:
            axis.legend(fontsize=8, frameon=False)
    return figure


def grouped_bars(labels: Sequence[str], groups: Mapping[str, Sequence[float]], low: float, ylabel: str) -> Figure:
    """Bars side by side for each label."""
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    axis = figure.subplots()
    palette = (MUTED, REVISED, GENERATED)
    width = 0.8 / len(groups)
    places = np.arange(len(labels))
    for i, (colour, (name, values)) in enumerate(zip(palette, groups.items(), strict=False)):
        axis.bar(places + (i - (len(groups) - 1) / 2) * width, values, width, label=name, color=colour)
    axis.set_xticks(places, labels)
    axis.set_ylim(low, 1.0)
    axis.set_ylabel(ylabel)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(fontsize=9, frameon=False, ncols=len(groups), loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def image_rows(rows: Mapping[str, Array]) -> Figure:
    """Labelled rows of images ``(n, channels, height, width)`` with values in [0, 1]."""
    n = max(len(images) for images in rows.values())
    figure = Figure(figsize=(0.62 * n + 1.6, 0.64 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), n, squeeze=False)
    for line, (label, images) in zip(axes, rows.items(), strict=True):
        for axis in line:
            axis.set_axis_off()
        for axis, image in zip(line, images, strict=False):
            _show(axis, image)
        line[0].text(-0.25, 0.5, label, transform=line[0].transAxes, ha="right", va="center", fontsize=9, color=INK)
    return figure


def image_grid(images: Array) -> Figure:
    """Images ``(rows, columns, channels, height, width)`` with values in [0, 1]."""
    rows, columns = images.shape[:2]
    figure = Figure(figsize=(columns * 0.8, rows * 0.8))
    axes = figure.subplots(rows, columns, squeeze=False, gridspec_kw={"wspace": 0.05, "hspace": 0.05})
    for axis, image in zip(axes.flat, images.reshape(rows * columns, *images.shape[2:]), strict=True):
        axis.set_axis_off()
        _show(axis, image)
    return figure


def points(clouds: Mapping[str, Array]) -> Figure:
    """Two-dimensional points in one plot."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    axis = figure.subplots()
    for colour, (label, cloud) in zip((REVISED, GENERATED, DATA), clouds.items(), strict=False):
        axis.scatter(cloud[:, 0], cloud[:, 1], s=5, c=colour, linewidths=0, alpha=0.8, label=label)
    axis.set_aspect("equal")
    if len(clouds) > 1:
        axis.legend(fontsize=8, frameon=False)
    return figure


def paths(lines: Array, backdrop: Array) -> Figure:
    """Two-dimensional paths ``(paths, steps, 2)`` over a cloud."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    axis = figure.subplots()
    axis.scatter(backdrop[:, 0], backdrop[:, 1], s=4, c=MUTED, linewidths=0)
    colours = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(lines)))
    for line, colour in zip(lines, colours, strict=True):
        axis.plot(line[:, 0], line[:, 1], ".-", color=colour, linewidth=1, markersize=4)
    axis.set_aspect("equal")
    return figure


def as_images(dataset: str, events: Array) -> Array:
    """Events ``(…, *event)`` of a dataset as images in [0, 1]; an error where they cannot be looked at."""
    entry = DATASETS.get(dataset)
    if entry is None or entry.image_shape is None or entry.event_shape is None:
        raise InputError(f"rows of {dataset} are no pictures; choose a file name that ends in .npz")
    lead = events.shape[: events.ndim - len(entry.event_shape)]
    images = events.reshape(*lead, *entry.image_shape)
    if len(entry.event_shape) == 3:  # convolutional pairs work in [−1, 1]
        images = (images + 1) / 2
    return np.asarray(np.clip(images, 0, 1))


def _show(axis: Any, image: Array) -> None:
    axis.imshow(np.moveaxis(image, 0, -1).squeeze(), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")


def _quiet(axis: Any) -> None:
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_color(MUTED)
