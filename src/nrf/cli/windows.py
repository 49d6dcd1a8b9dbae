"""Options of `nrf detect fit` for series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from nrf.errors import InputError

if TYPE_CHECKING:
    from nrf.detect.windows import Windows

Column = Annotated[str | None, tyro.conf.arg(metavar="COL")]


@dataclass(frozen=True)
class WindowOptions:
    """A detector of windows: it sees several neighbouring rows at once, in the order of time, and scores rows."""

    window: Annotated[int | None, tyro.conf.arg(metavar="SIZE")] = None
    """Rows per window. Calibration rows are then the last part of each series, not random rows."""
    window_step: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Rows from one window to the next."""
    window_score: Literal["mean", "min"] = "mean"
    """A row's score is the mean or the minimum of the scores of the windows that hold it."""
    time: Column = None
    """Column to order rows by; windows do not reach over gaps in it. Without it, rows must be in order."""
    group: Column = None
    """Column that says which series a row belongs to; a window holds rows of one series."""

    def features(self) -> Windows | None:
        """The feature step, if there is one."""
        from nrf.detect.windows import Windows

        if self.window is None:
            given = [f"--{n.replace('_', '-')}" for n in OTHERS if getattr(self, n) != getattr(NO_WINDOWS, n)]
            if given:
                raise InputError(f"{' and '.join(given)} go with windows; give --window SIZE as well")
            return None
        windows = Windows(self.window, self.window_step, self.time, self.group, how=self.window_score)
        windows.check()
        return windows


OTHERS = ("window_step", "window_score", "time", "group")
NO_WINDOWS = WindowOptions()
