"""The common style of all figures: colours, axes, and writing to a file."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from nrf.files import replaced

Array = NDArray[np.floating]

INK, DATA, GENERATED, REVISED, MUTED = "#1f2933", "#52606d", "#d9822b", "#0b7285", "#cbd2d9"
VIOLET, RED = "#862e9c", "#e03131"
PALETTE = (REVISED, GENERATED, DATA, VIOLET, "#b08900", "#2b8a3e", "#c92a2a", "#4dabf7")
"""Colours of compared series, in order."""


def save(figure: Figure, path: Path | str) -> None:
    """Write a figure to a PNG file.

    Args:
        figure: The figure.
        path: The file.
    """
    with replaced(Path(path)) as partial:
        figure.savefig(partial, dpi=130, bbox_inches="tight")


def as_data_uri(figure: Figure) -> str:
    """Encode a figure as a PNG data URI, to embed it in a page.

    Args:
        figure: The figure.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, bbox_inches="tight")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def row_of_axes(n: int, width: float, height: float, *, sharey: bool = False) -> tuple[Figure, list[Any]]:
    """A figure with n plots side by side, each of that size in inches."""
    figure = Figure(figsize=(width * n, height), layout="constrained")
    return figure, list(figure.subplots(1, n, squeeze=False, sharey=sharey)[0])


def open_axis(axis: Any, **grid: Any) -> None:
    """Give an axis a thin grid, without a box around it."""
    axis.grid(color=MUTED, linewidth=0.5, alpha=0.6, **grid)
    axis.spines[["top", "right"]].set_visible(False)


def framed_axis(axis: Any) -> None:
    """Give an axis a thin frame without numbers."""
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set_color(MUTED)
