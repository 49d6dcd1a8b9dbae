"""Process parts of a large array in threads, and set how many threads torch uses for its own work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import torch

Result = TypeVar("Result")

PART = 1 << 16
"""Rows per part."""


class _Inside:
    """How many threads of the process are in :func:`one_thread`, and the first one's number of threads before."""

    lock = Lock()
    count = 0
    before = 1


@contextmanager
def one_thread() -> Iterator[None]:
    """A context in which torch works in the calling thread alone.

    Torch keeps a number of threads for each Python thread, and a new thread takes over the number that was set last
    anywhere. So while several are inside, a 1 that a thread finds may come from another one; the number to restore is
    the one that the first thread found.
    """
    with _Inside.lock:
        before = _n_threads()
        if not _Inside.count:
            _Inside.before = before
        _Inside.count += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _Inside.lock:
            _Inside.count -= 1
            torch.set_num_threads(before)


def _n_threads() -> int:
    """Torch's number of threads for the calling thread, outside of :func:`one_thread`."""
    found = torch.get_num_threads()
    return _Inside.before if found == 1 and _Inside.count else found


def parts_of(data: Any) -> list[Any]:
    """An array in parts of equal length; anything else as one part."""
    if not isinstance(data, np.ndarray) or len(data) <= PART:
        return [data]
    return np.array_split(data, -(-len(data) // PART))


def in_threads(function: Callable[[Any], Result], parts: Sequence[Any]) -> list[Result]:
    """The function's result for each part: as many at a time as torch has threads, one thread each.

    Encoding uses one thread, and matrix products of a few thousand rows gain little from a second one.
    """
    n_threads = _n_threads()
    if len(parts) == 1 or n_threads == 1:
        return [function(part) for part in parts]
    with one_thread(), ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        return list(pool.map(function, parts))
