"""What training does to the process it runs in: signals that ask it to stop, threads."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch


@contextmanager
def graceful_stop(wanted: bool) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a wish to stop after this iteration; a second one is obeyed at once.

    Where nothing can be kept, or signals are another thread's, they do what they always do.
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
    """Set the number of threads for the whole process; part of what makes results repeat bit by bit."""
    if threads is not None:
        torch.set_num_threads(threads)
