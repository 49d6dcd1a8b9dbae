"""Figures: each function takes arrays and returns a matplotlib figure."""

from nrf.errors import needs

with needs("figures", "a picture"):
    import matplotlib  # noqa: F401

from nrf.figures.charts import contribution_bars, grouped_bars, heat_map, trade_off
from nrf.figures.densities import calibration, log_density_maps
from nrf.figures.grids import as_images, image_grid, image_rows
from nrf.figures.lines import bands, curves, epochs, evidence, families
from nrf.figures.plane import Grid, Panel, field_panels, method_panels, paths, points
from nrf.figures.style import Array, as_data_uri, save

__all__ = [
    "Array",
    "Grid",
    "Panel",
    "as_data_uri",
    "as_images",
    "bands",
    "calibration",
    "contribution_bars",
    "curves",
    "epochs",
    "evidence",
    "families",
    "field_panels",
    "grouped_bars",
    "heat_map",
    "image_grid",
    "image_rows",
    "log_density_maps",
    "method_panels",
    "paths",
    "points",
    "save",
    "trade_off",
]
