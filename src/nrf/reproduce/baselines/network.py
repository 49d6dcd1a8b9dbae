"""A detector that is a network: Adam over shuffled batches of one loss."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nrf.errors import InputError, NonFiniteError
from nrf.reproduce.baselines.base import Baseline, Scores
from nrf.seeds import DrawsFrom, stream
from nrf.training.batches import Batches
from nrf.training.progress import ProgressBar

CHUNK = 4096


@dataclass
class NetworkBaseline(Baseline):
    """A network trained by one loss on rows of numbers; the seed is that of weights, order and noise."""

    epochs: int = 30
    """Passes over the rows."""
    batch_size: int = 1024
    """Rows a batch."""
    learning_rate: float = 1e-4
    """Of Adam."""
    quiet: bool = True
    """No progress bar."""

    module: ClassVar[str] = "torch"
    n_axes: ClassVar[int] = 2
    """Of the rows: 2 for a table, 4 for images."""

    @abstractmethod
    def build(self, shape: tuple[int, ...]) -> nn.Module:
        """The network for rows of that shape: ``(columns,)``, or ``(channels, height, width)`` of images."""

    @abstractmethod
    def loss(self, batch: Tensor, rng: torch.Generator) -> Tensor:
        """What is minimised."""

    @abstractmethod
    def normality(self, rows: Tensor) -> Tensor:
        """One number a row, high = normal."""

    def learn(self, rows: NDArray[np.float32]) -> None:
        """Train on normal rows."""
        if rows.ndim != self.n_axes or not len(rows):
            what = "a table of numbers" if self.n_axes == 2 else "images (n, channels, height, width)"
            raise InputError(f"rows must be {what}, got the shape {rows.shape}")
        data = torch.as_tensor(rows, dtype=torch.float32)
        with DrawsFrom(stream(self.seed, "weights")):
            self.network = self.build(tuple(data.shape[1:]))
        data = self.prepare(data)
        optimizers = self.optimizers()
        batches, rng = Batches(data, self.batch_size, [self.seed]), stream(self.seed, "learner")
        dropout, total = stream(self.seed, "dropout"), self.epochs * batches.per_epoch
        self.network.train()
        with ProgressBar(type(self).__name__, total, 0, quiet=self.quiet) as bar:
            for step in range(total):
                for optimizer, of in zip(optimizers, self.losses(batches.at(step), rng), strict=True):
                    with DrawsFrom(dropout):
                        loss = of()
                    if not torch.isfinite(loss):
                        raise NonFiniteError(f"{type(self).__name__}: the loss is not finite at step {step + 1}")
                    self.network.zero_grad(set_to_none=True)
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                bar.advance()
        self.network.eval()
        self.finish(data)

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """One for each loss; Adam of the whole network where there is one loss."""
        return [torch.optim.Adam(self.network.parameters(), lr=self.learning_rate)]

    def losses(self, batch: Tensor, rng: torch.Generator) -> list[Callable[[], Tensor]]:
        """What each optimiser minimises in a step, one after the other."""
        return [lambda: self.loss(batch, rng)]

    def prepare(self, data: Tensor) -> Tensor:
        """What is to be done before training; the rows as the network takes them."""
        return data

    def finish(self, data: Tensor) -> None:
        """What is to be computed once training is over."""

    def scores(self, rows: NDArray[np.float32]) -> Scores:
        """One number a row, high = normal."""
        if not hasattr(self, "network"):
            raise InputError(f"this {type(self).__name__} is not fitted yet; call fit first")
        parts = torch.split(torch.as_tensor(rows, dtype=torch.float32), CHUNK)
        found: Scores = torch.cat([self.normality(part).detach() for part in parts]).double().numpy()
        return found
