"""Datasets by name: find, check, load, fetch."""

from __future__ import annotations

import difflib
from pathlib import Path

from nrf.data.base import Check, Collection, Dataset, Filed, Notify, Splits, fetch_into_cache, require, search
from nrf.errors import DataError, InputError
from nrf.seeds import require_seed


def dataset(name: str) -> Dataset:
    """Return the registered dataset called ``name``.

    Args:
        name: A name in ``DATASETS``.

    >>> dataset("gmm").event_shape
    (2,)
    """
    # Taken here, not above: the registry imports the datasets, and this module is imported with it.
    from nrf.data import COLLECTIONS, DATASETS

    if name in DATASETS:
        return DATASETS[name]
    if name in COLLECTIONS:
        raise InputError(f"{name!r} is a collection of tables, not one dataset: {COLLECTIONS[name].description}")
    raise _unknown(name)


def _dataset_or_collection(name: str) -> Dataset | Collection:
    from nrf.data import COLLECTIONS

    return COLLECTIONS[name] if name in COLLECTIONS else dataset(name)


def _unknown(name: str) -> InputError:
    from nrf.data import COLLECTIONS, DATASETS

    known = [*DATASETS, *COLLECTIONS]
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(known)}"
    return InputError(f"unknown dataset {name!r}: {hint}")


def locate(name: str, path: Path | str | None = None) -> Path | None:
    """Return the folder with the files of a dataset or collection, or ``None``; neither checks hashes nor fetches.

    Data that is generated has no files, so there is no folder.

    Args:
        name: A name in ``DATASETS`` or ``COLLECTIONS``.
        path: Folder to look in; see :func:`resolve` for where else files are looked for.

    >>> locate("gmm") is None
    True
    """
    chosen = _dataset_or_collection(name)
    return search(chosen, path) if chosen.files else None


def folder_of(name: str, path: Path | str | None = None, *, fetch: bool = True) -> Path:
    """Return the folder of a collection, with the content of every file checked; fetch them if allowed.

    The files are looked for as in :func:`resolve`. The collection's own module reads the tables from there.

    Args:
        name: A name in ``COLLECTIONS``.
        path: Folder that holds the files.
        fetch: Whether missing files may be fetched.
    """
    from nrf.data import COLLECTIONS

    if name not in COLLECTIONS:
        raise InputError(f"{name!r} is not a collection of tables; there is {', '.join(COLLECTIONS)}")
    return require(COLLECTIONS[name], path, fetch=fetch)


def resolve(name: str, path: Path | str | None = None, *, fetch: bool = True, split: int = 0) -> Splits:
    """Load a dataset by name, with the content of every file checked.

    Files are looked for in ``path``, else in ``$NRF_DATA``, else in the cache folder, else fetched into it (unless
    ``fetch=False``). A ``path`` that does not hold the files is an error, not a reason to look elsewhere.

    Args:
        name: A name in ``DATASETS``.
        path: Folder that holds the files.
        fetch: Whether missing files may be fetched.
        split: For a dataset without a fixed test set, the seed by which training and test rows are drawn.

    Raises:
        DataError: The files are missing or are not the right ones.

    >>> resolve("gmm").train.shape
    (1600, 2)
    """
    chosen = dataset(name)
    require_seed(split, "split")
    if split and chosen.draw_split is None:
        raise InputError(f"{name} has one split, number 0; got {split}")
    folder = _folder(chosen, path, fetch=fetch)
    return chosen.draw_split(folder, split) if chosen.draw_split is not None else chosen.load(folder)


def verify(name: str, path: Path | str | None = None) -> list[Check]:
    """Check every file of a dataset, then known facts about the data loaded from them.

    Nothing is fetched. Facts are only checked if all files are right.

    Args:
        name: A name in ``DATASETS`` or ``COLLECTIONS``.
        path: Folder that holds the files.

    >>> all(check.ok for check in verify("gmm"))
    True
    """
    chosen = _dataset_or_collection(name)
    folder = search(chosen, path) if chosen.files else None
    # Wrong files are reported one by one, so only a missing dataset is left to the function that raises.
    folder = folder or _folder(chosen, path, fetch=False)
    checks = [] if folder is None else [file.check(folder) for file in chosen.files]
    if all(check.ok for check in checks):
        if isinstance(chosen, Collection):
            assert folder is not None
            checks += chosen.facts(folder)
        elif chosen.facts is not None:
            checks += chosen.facts(chosen.load(folder))
    return checks


def fetch(name: str, notify: Notify | None = None) -> Path:
    """Fetch a dataset into the cache folder and return its folder.

    Args:
        name: A name in ``DATASETS`` or ``COLLECTIONS``.
        notify: Called with one line of text at each stage.
    """
    chosen = _dataset_or_collection(name)
    if not chosen.files:
        raise DataError(f"{name} is generated, there is nothing to fetch: use it as it is")
    return fetch_into_cache(chosen, notify)


def _folder(chosen: Filed, path: Path | str | None, *, fetch: bool) -> Path | None:
    if chosen.files:
        return require(chosen, path, fetch=fetch)
    if path is not None:
        raise InputError(f"{chosen.name} is generated and reads no files: leave the path {path} out")
    return None
