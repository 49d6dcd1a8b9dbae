"""Grids of images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nrf.data import DATASETS
from nrf.errors import InputError
from nrf.figures.style import INK, Array


def image_rows(rows: Mapping[str, Array]) -> Figure:
    """Draw labelled rows of images.

    Args:
        rows: Images ``(n, channels, height, width)`` with values in [0, 1], by label.
    """
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
    """Draw a grid of images.

    Args:
        images: ``(rows, columns, channels, height, width)`` with values in [0, 1].
    """
    rows, columns = images.shape[:2]
    figure = Figure(figsize=(columns * 0.8, rows * 0.8))
    axes = figure.subplots(rows, columns, squeeze=False, gridspec_kw={"wspace": 0.05, "hspace": 0.05})
    for axis, image in zip(axes.flat, images.reshape(rows * columns, *images.shape[2:]), strict=True):
        axis.set_axis_off()
        _show(axis, image)
    return figure


def as_images(dataset: str, events: Array) -> Array:
    """Convert events of a dataset to images with values in [0, 1].

    Args:
        dataset: Name of the dataset.
        events: ``(…, *event)``.

    Raises:
        InputError: The dataset does not hold images.
    """
    entry = DATASETS.get(dataset)
    if entry is None or entry.image_shape is None or entry.event_shape is None:
        raise InputError(f"rows of {dataset} are not images; choose a file name that ends in .npz")
    lead = events.shape[: events.ndim - len(entry.event_shape)]
    images = events.reshape(*lead, *entry.image_shape)
    if len(entry.event_shape) == 3:  # convolutional pairs work in [−1, 1]
        images = (images + 1) / 2
    return np.asarray(np.clip(images, 0, 1))


def _show(axis: Any, image: Array) -> None:
    axis.imshow(np.moveaxis(image, 0, -1).squeeze(), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
