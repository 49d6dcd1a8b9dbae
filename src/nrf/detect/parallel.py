"""Parts of a large array, each worked on by a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch

Result = TypeVar("Result")

PART = 1 << 16
"""Rows of a part."""


def parts_of(data: Any) -> list[Any]:
    """An array in parts of equal length, or whatever else it is as a whole."""
    if not isinstance(data, np.ndarray) or len(data) <= PART:
        return [data]
    return np.array_split(data, -(-len(data) // PART))


def in_threads(function: Callable[[Any], Result], parts: Sequence[Any]) -> list[Result]:
    """What the function has for each part: as many at a time as torch has threads, one thread each.

    Encoding is the work of one thread, and products of a few thousand rows gain little from a second one.
    """
    n_threads = torch.get_num_threads()
    if len(parts) == 1 or n_threads == 1:
        return [function(part) for part in parts]
    with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            return list(pool.map(function, parts))
        finally:
            torch.set_num_threads(n_threads)  # what threads begun later start with
