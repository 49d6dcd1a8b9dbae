"""Several processes that train one model: who I am among them, and what we do together.

Each rank takes its part of every batch, and of every draw for the whole batch (:class:`nrf.seeds.Shard`). Gradients are
means over ranks, so one rank, two or eight take the same steps, but for rounding; where batch norm is part of a loss,
each rank has the statistics of its own rows, and running ones are means.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nrf.errors import InputError


@dataclass(frozen=True)
class Ranks:
    """One process of several.

    Example:
        >>> Ranks().part(torch.arange(4)).tolist(), Ranks(rank=1, count=2).part(torch.arange(4)).tolist()
        ([0, 1, 2, 3], [2, 3])
    """

    rank: int = 0
    count: int = 1

    @classmethod
    def of_environment(cls, device: str = "cpu") -> Ranks:
        """What `torchrun` says; alone without it. The first call joins the others."""
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls()
        if not dist.is_initialized():
            dist.init_process_group("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo")
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def leads(self) -> bool:
        """Whether this one writes and speaks for all."""
        return self.rank == 0

    def device_of(self, name: str) -> str:
        """A processor of its own for each rank of a machine."""
        return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if name == "cuda" and self.count > 1 else name

    def require_divides(self, batch_size: int) -> None:
        """Every rank has the same share of a batch, or means would not be means."""
        if batch_size % self.count:
            raise InputError(f"a batch of {batch_size} rows cannot be shared by {self.count} ranks; take a multiple")

    def part(self, rows: Tensor) -> Tensor:
        """This rank's rows of a batch."""
        share = len(rows) // self.count
        return rows[self.rank * share : (self.rank + 1) * share]

    @torch.no_grad()
    def average_(self, tensors: Iterable[Tensor]) -> None:
        """Put the mean over ranks in place of each tensor."""
        found = [] if self.count == 1 else list(tensors)
        if not found:
            return
        flat = torch.cat([t.reshape(-1) for t in found])
        dist.all_reduce(flat)
        parts = torch.split(flat / self.count, [t.numel() for t in found])
        for tensor, part in zip(found, parts, strict=True):
            tensor.copy_(part.reshape(tensor.shape))

    def average_gradients(self, module: nn.Module) -> None:
        """Every parameter's gradient the mean over ranks."""
        self.average_(p.grad for p in module.parameters() if p.grad is not None)

    def average_statistics(self, modules: Iterable[nn.Module]) -> None:
        """Running statistics, and all other buffers of numbers, the mean over ranks."""
        if self.count > 1:
            self.average_(b for m in modules for b in m.buffers() if b.is_floating_point())

    def means(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Each number the mean over ranks."""
        if self.count == 1:
            return dict(numbers)
        values = torch.tensor(list(numbers.values()), dtype=torch.float64)
        dist.all_reduce(values)
        return dict(zip(numbers, (values / self.count).tolist(), strict=True))

    def any(self, flag: bool) -> bool:
        """Whether some rank says yes: what one does, all do."""
        if self.count == 1:
            return flag
        asked = torch.tensor(float(flag))
        dist.all_reduce(asked, op=dist.ReduceOp.MAX)
        return bool(asked > 0)


def leave() -> None:
    """End the group, and its threads with it: where they outlive the interpreter, the process may abort at its end."""
    if dist.is_initialized():
        dist.destroy_process_group()


ALONE = Ranks()
