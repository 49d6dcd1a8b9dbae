"""Independent random streams from one seed."""

from __future__ import annotations

import hashlib

import torch


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream of that name: the same on every machine, unrelated to its neighbours.

    Example:
        >>> derive(0, "order", 1) == derive(0, "order", 1), derive(0, "order", 1) == derive(0, "order", 2)
        (True, False)
    """
    text = "/".join(str(n) for n in (seed, *names))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def stream(seed: int, *names: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator at the start of that stream."""
    return torch.Generator(device=device).manual_seed(derive(seed, *names))
