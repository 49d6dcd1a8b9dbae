"""Process-wide settings of training: stop signals and threads."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def graceful_stop(wanted: bool) -> Iterator[Callable[[], bool]]:
    """Context in which the first Ctrl-C or SIGTERM asks to stop after this iteration; a second one acts at once.

    If not ``wanted``, or outside the main thread, signals have their usual effect.

    Args:
        wanted: Whether signals should be caught, as when a checkpoint can be written.

    Returns:
        A function that says whether a stop was asked for.
    """
    asked = threading.Event()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    previous = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: object) -> None:
        asked.set()
        signal.signal(number, previous[signal.Signals(number)])

    for s in previous:
        signal.signal(s, ask)
    try:
        yield asked.is_set
    finally:
        for s, handler in previous.items():
            signal.signal(s, handler)


def use_threads(threads: int | None) -> None:
    """Set the number of threads for the whole process; results repeat bit by bit only with the same number.

    Args:
        threads: The number; ``None`` leaves it as it is.
    """
    if threads is not None:
        torch.set_num_threads(threads)
