"""Independent random streams from one seed, and draws from them.

Training code draws through the functions here, so that the same code serves one model (a generator) and several
replicas of it (:class:`Streams`, one generator each).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nrf.errors import InputError

MOST = 2**32 - 1
"""The largest seed that NumPy and scikit-learn accept."""


class Streams:
    """One generator per replica. A draw of ``n`` rows holds ``n / R`` rows from each of the R replicas, in their order.

    Args:
        generators: One per replica, all on one device.

    Example:
        >>> both = Streams([stream(0, "learner"), stream(1, "learner")])
        >>> alone = randn((3, 2), stream(1, "learner"))
        >>> bool((randn((6, 2), both)[3:] == alone).all())
        True
    """

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        self.generators = list(generators)

    @property
    def device(self) -> torch.device:
        """The device that draws are made on."""
        return self.generators[0].device

    def get_state(self) -> Tensor:
        """The states of all generators, one per row."""
        return torch.stack([g.get_state() for g in self.generators])

    def set_state(self, state: Tensor) -> None:
        """Restore what :meth:`get_state` returned."""
        for generator, row in zip(self.generators, state, strict=True):
            generator.set_state(row.clone())


class Shard:
    """One rank's part of the draws of all ranks, which share one stream whatever the number of ranks.

    Args:
        generator: A generator in the same state on every rank.
        rank: The rank whose part this is.
        count: Number of ranks.

    Example:
        >>> whole = randn((4, 2), stream(0, "learner"))
        >>> bool((randn((2, 2), Shard(stream(0, "learner"), 1, 2)) == whole[2:]).all())
        True
    """

    def __init__(self, generator: torch.Generator, rank: int, count: int) -> None:
        self.generator, self.rank, self.count = generator, rank, count

    @property
    def device(self) -> torch.device:
        """The device that draws are made on."""
        return self.generator.device

    def get_state(self) -> Tensor:
        """The state of the shared stream."""
        return self.generator.get_state()

    def set_state(self, state: Tensor) -> None:
        """Restore what :meth:`get_state` returned on any rank."""
        self.generator.set_state(state)


class Tape:
    """Draws made in advance and returned in order; a compiled function takes them in place of a generator.

    Args:
        draws: Normal and uniform draws, in the order in which they will be asked for.
    """

    def __init__(self, draws: list[Tensor]) -> None:
        self.draws = draws
        self.place = 0

    @classmethod
    def record(cls, shapes: Sequence[Drawn], rng: Rng) -> Tape:
        """Make the draws that :func:`shapes_drawn` says will be needed."""
        return cls([(randn if kind == "normal" else rand)(shape, rng, dtype) for shape, dtype, kind in shapes])

    def next(self) -> Tensor:
        """The next draw."""
        self.place += 1
        return self.draws[self.place - 1]


class Recorder:
    """Stands in for a generator and records the draws that it is asked for."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.generator = torch.Generator(device)
        self.shapes: list[Drawn] = []


Seeded = torch.Generator | Streams | Shard
Rng = Seeded | Tape | Recorder
"""A source of randomness: of one model, of replicas, or of one rank; or what a compiler needs in its place."""
Drawn = tuple[Sequence[int], torch.dtype | None, Literal["normal", "uniform"]]
"""A draw that a function asked for: its shape, type and law."""


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream of that name: the same on every machine, unrelated to its neighbours.

    Example:
        >>> derive(0, "order", 1) == derive(0, "order", 1), derive(0, "order", 1) == derive(0, "order", 2)
        (True, False)
    """
    text = "/".join(str(n) for n in (seed, *names))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def require_seed(seed: int, what: str = "seed") -> int:
    """Return a user's seed, or raise an error if it is out of range.

    Example:
        >>> require_seed(7)
        7
    """
    if not 0 <= seed <= MOST:
        raise InputError(f"{what} must be from 0 to {MOST}, got {seed}")
    return seed


def stream(seed: int, *names: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator at the start of the stream of that name."""
    return torch.Generator(device=device).manual_seed(derive(seed, *names))


def streams(seeds: Sequence[int], *names: str | int, device: torch.device | str = "cpu") -> Seeded:
    """The stream of that name for each seed; for a single seed, a plain generator."""
    generators = [stream(seed, *names, device=device) for seed in seeds]
    return generators[0] if len(generators) == 1 else Streams(generators)


class DrawsFrom(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which layers that use torch's global generator (initial weights, dropout) draw from this one
    instead.

    They are the draws that ``torch.manual_seed`` with the same seed would have given. Only the thread inside the
    context is affected, and the global generator, which all threads of a process share, is neither read nor changed.

    Args:
        generator: Where the draws come from.

    Example:
        >>> before = torch.get_rng_state()
        >>> with DrawsFrom(torch.Generator().manual_seed(0)):
        ...     layer = torch.nn.Linear(2, 1)
        >>> bool((torch.get_rng_state() == before).all())
        True
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No compiled code runs inside; True would import torch's compiler at the first use, which takes a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags and given.get("generator") is None:
            if not any(argument.name == "generator" for argument in func._schema.arguments):
                raise TypeError(f"{func} draws from torch's global generator; call it with a generator")
            given["generator"] = self.generator
        return func(*args, **given)


def randn(shape: Sequence[int], rng: Rng, dtype: torch.dtype | None = None) -> Tensor:
    """Standard normal draws; the first dimension counts rows."""
    return _drawn(shape, rng, dtype, "normal")


def shapes_drawn(function: Callable[[Rng], object], device: torch.device) -> list[Drawn]:
    """The normal and uniform draws a function makes, in order, found by calling it once."""
    recorder = Recorder(device)
    function(recorder)
    return recorder.shapes


def rand(shape: Sequence[int], rng: Rng, dtype: torch.dtype | None = None) -> Tensor:
    """Uniform draws from [0, 1); the first dimension counts rows."""
    return _drawn(shape, rng, dtype, "uniform")


def _drawn(shape: Sequence[int], rng: Rng, dtype: torch.dtype | None, law: Literal["normal", "uniform"]) -> Tensor:
    if isinstance(rng, Tape):
        return rng.next()
    if isinstance(rng, Recorder):
        rng.shapes.append((tuple(shape), dtype, law))
        rng = rng.generator
    draw = torch.randn if law == "normal" else torch.rand
    return _by_rows(shape, rng, lambda s, g: draw(s, generator=g, device=g.device, dtype=dtype))


def places(size: int, n: int, rng: Rng, *, repeat: bool) -> Tensor:
    """Draw ``n`` row numbers below ``size``; each replica draws its share of ``n`` from its share of the rows.

    Args:
        size: Rows to choose from.
        n: How many to draw.
        rng: Source of randomness.
        repeat: Whether a row may be drawn twice.
    """

    def draw(shape: Sequence[int], generator: torch.Generator) -> Tensor:
        if repeat:
            return torch.randint(share, tuple(shape), generator=generator, device=generator.device)
        return torch.randperm(share, generator=generator, device=generator.device)[: shape[0]]

    count = len(rng.generators) if isinstance(rng, Streams) else 1
    share = size // count
    chosen = _by_rows((n,), rng, draw)
    first = torch.arange(count, device=chosen.device) * share
    return chosen + first.repeat_interleave(n // count)


def _by_rows(shape: Sequence[int], rng: Rng, draw: Callable[[Sequence[int], torch.Generator], Tensor]) -> Tensor:
    if isinstance(rng, torch.Generator):
        return draw(shape, rng)
    if isinstance(rng, Shard):
        n = shape[0]
        return draw((rng.count * n, *shape[1:]), rng.generator)[rng.rank * n : (rng.rank + 1) * n]
    if not isinstance(rng, Streams):
        raise TypeError(f"{type(rng).__name__} gives normal and uniform draws only")
    share = (shape[0] // len(rng.generators), *shape[1:])
    return torch.cat([draw(share, g) for g in rng.generators])
