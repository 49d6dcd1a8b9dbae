"""Pictures of explanations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nrf.errors import needs

with needs("figures", "a picture"):
    from matplotlib.figure import Figure

if TYPE_CHECKING:
    from nrf.detect.explain import Explanation

INK, CHANGED, OTHER = "#1f2933", "#d9822b", "#cbd2d9"
LONGEST_NAME = 32


def contribution_bars(explanation: Explanation, title: str = "", most: int = 15) -> Figure:
    """What each feature adds to a row's potential, as bars: to the left = makes it abnormal.

    Args:
        explanation: A row explained.
        title: Line above.
        most: Only so many bars, of the features that add or cost most.
    """
    changed = {change.feature for change in explanation.changes}
    ordered = sorted(explanation.contributions.items(), key=lambda item: (-abs(item[1]), item[0]))
    shown = sorted(ordered[:most], key=lambda item: item[1], reverse=True)
    figure = Figure(figsize=(7.0, 1.3 + 0.32 * max(len(shown), 1)), layout="constrained")
    axis = figure.subplots()
    names = [_short(name) for name, _ in shown]
    places = range(len(shown))
    axis.barh(places, [value for _, value in shown], color=[CHANGED if n in changed else OTHER for n, _ in shown])
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
    """A name that fits, with dollar signs that are no formulas."""
    short = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return short.replace("$", r"\$")
