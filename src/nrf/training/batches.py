"""The order of the data: a function of the seed and the step, so that it need not be stored."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from nrf.errors import InputError
from nrf.seeds import stream

MOST_WATCHED = 5000


class Batches:
    """Shuffled batches; every epoch is a new permutation, whose last, incomplete batch is dropped.

    Args:
        data: All training rows.
        batch_size: Rows per batch; all of them if there are fewer.
        seeds: Seed of the order; with several, a batch consists of the batches of each order, one after the other.

    Example:
        >>> batches = Batches(torch.arange(6.0).reshape(6, 1), batch_size=3, seeds=[0])
        >>> sorted(torch.cat([batches.at(0), batches.at(1)]).flatten().tolist())
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    """

    def __init__(self, data: Tensor, batch_size: int, seeds: Sequence[int]) -> None:
        if len(data) < 2:
            raise InputError(f"training needs at least 2 rows, got {len(data)}")
        self.data, self.seeds = data, list(seeds)
        self.batch_size = min(batch_size, len(data))
        self.per_epoch = len(data) // self.batch_size
        self._epoch = -1
        self._order = torch.empty(0, dtype=torch.long)

    def position(self, step: int) -> tuple[int, int]:
        """Epoch, and position within it, of the batch of a step."""
        return divmod(step, self.per_epoch)

    def at(self, step: int) -> Tensor:
        """The batch of a step, counted from 0."""
        epoch, cursor = self.position(step)
        if epoch != self._epoch:
            orders = [torch.randperm(len(self.data), generator=stream(seed, "order", epoch)) for seed in self.seeds]
            self._order = torch.stack(orders).to(self.data.device)
            self._epoch = epoch
        return self.data.index_select(
            0, self._order[:, cursor * self.batch_size : (cursor + 1) * self.batch_size].flatten()
        )

    def fingerprint(self) -> str:
        """A digest of the rows, so that a run is not resumed on other data."""
        content = self.data.detach().cpu().contiguous().numpy()
        return hashlib.blake2b(content.data, digest_size=16).hexdigest()


def set_aside(data: Tensor, share: float, seed: int) -> tuple[Tensor | None, Tensor]:
    """Split rows into rows to watch, which training must not use, and rows to train on.

    Args:
        data: All rows.
        share: Share of the rows to watch, of which there are at most 5,000.
        seed: Seed of the split.

    Returns:
        Rows to watch, ``None`` if the share is 0, and rows to train on.
    """
    if share == 0:
        return None, data
    n = min(MOST_WATCHED, round(share * len(data)))
    if n < 2:
        raise InputError(f"a share of {share} of {len(data)} rows is too little to watch; raise watch_share")
    order = torch.randperm(len(data), generator=stream(seed, "watched")).to(data.device)
    return data[order[:n]], data[order[n:]]
