"""How a process ends: in order when it is asked to, and not later than the one that started it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from nrf.errors import needs

WATCH_SECONDS = 0.5
_watched: set[int] = set()


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does: end the work in order, that of other processes too, instead of leaving them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def ray_cluster() -> Iterator[None]:
    """A cluster of Ray: the one that this process is connected to, else one that ends with the work.

    A new one is that which ``RAY_ADDRESS`` names, or the cores of this machine.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with needs("ray", "the engine ray"):
        import ray

    if ray.is_initialized():
        yield
        return
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    try:
        yield
    finally:
        ray.shutdown()


def end_with(parent: int) -> None:
    """Let this process end soon after the one that started it, also where that one was killed.

    A thread looks at the number of the parent, which changes when the parent is gone. (Linux can send a signal then,
    but does so when the thread ends that started the child, which may be earlier.) The parent itself is not watched.
    """
    if parent == os.getpid() or parent in _watched:
        return
    _watched.add(parent)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="ends with its parent", daemon=True).start()
