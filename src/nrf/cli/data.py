"""`nrf data`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import tyro

from nrf.cli.parsing import say
from nrf.errors import DataError, InputError


def data(
    action: tyro.conf.Positional[Literal["list", "fetch", "verify"]],
    name: tyro.conf.Positional[str | None] = None,
    /,
    *,
    path: Path | None = None,
) -> int:
    """List the datasets, fetch one into the cache, or check one's files and facts.

    Example: nrf data fetch mnist

    Args:
        action: What to do.
        name: The dataset, for fetch and verify.
        path: Folder of the files, for verify; else $NRF_DATA or the cache.
    """
    if action == "list":
        return _list_data()
    if name is None:
        raise InputError(f"which dataset? `nrf data {action} NAME`; `nrf data list` shows the names")
    if action == "fetch":
        return _fetch_data(name, path)
    return _verify_data(name, path)


def _list_data() -> int:
    from nrf.data import COLLECTIONS, DATASETS, locate

    for name, dataset in (DATASETS | COLLECTIONS).items():
        try:
            remedy = f"nrf data fetch {name}" if dataset.fetch is not None else "set NRF_DATA to its folder"
            place = str(locate(name) or f"not here; {remedy}") if dataset.files else "built in"
        except DataError as error:
            place = str(error)
        say(f"{name:10}  {dataset.description}  [{place}]")
    return 0


def _fetch_data(name: str, path: Path | None) -> int:
    from nrf.data import fetch

    if path is not None:
        raise InputError("fetch writes to the cache; set $NRF_CACHE to choose its place")
    say(f"{name}: {fetch(name, notify=say)}")
    return 0


def _verify_data(name: str, path: Path | None) -> int:
    from nrf.data import verify

    checks = verify(name, path)
    for check in checks:
        say(str(check))
    wrong = [check for check in checks if not check.ok]
    say(f"{name}: {len(checks) - len(wrong)} of {len(checks)} checks passed")
    return 2 if wrong else 0
