"""For the detector's tests, most of which fit few rows for a few iterations."""

from __future__ import annotations

from pathlib import Path

import pytest

EXPECTED = (
    "ignore:.*calibration rows cannot keep:RuntimeWarning",  # too few rows for the rate
    "ignore:training made this detector no better:RuntimeWarning",  # too few iterations
    "ignore:.*columns are taken to be separated by:UserWarning",  # files that leave the separator to be guessed
)
"""Warnings that would fill the summary; tests of the warnings themselves record them all the same."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            for warning in EXPECTED:
                item.add_marker(pytest.mark.filterwarnings(warning))
