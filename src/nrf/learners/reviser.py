"""The revision as learners call it, step by step or compiled."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from nrf.learners.revision import Revised, Revision
from nrf.models import LatentGenerator, frozen
from nrf.networks import Snapshot
from nrf.samplers import Sampler
from nrf.seeds import Drawn, Rng, Tape, shapes_drawn

log = logging.getLogger(__name__)

Steps = Callable[[Tensor, Tensor, list[Tensor]], Revised]


class Reviser:
    """Revises samples with the current values of the networks.

    When compiled, all steps are one function of position and noise, so the noise is drawn beforehand, in the same
    order. If the compiler is missing or fails, the steps are taken one by one, after one warning.

    Args:
        potential: ``u``.
        generator: ``q(x, h)``.
        sampler: Any sampler.
        revision: Target and length.

    Attributes:
        diagnostics: The sampler's diagnostics of the last call, such as ``acceptance``.
    """

    diagnostics: dict[str, Tensor]

    def __init__(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> None:
        self.potential, self.generator, self.sampler, self.revision = potential, generator, sampler, revision
        self.diagnostics = {}
        self._compiled: dict[tuple[torch.Size, torch.Size], tuple[Steps, list[Drawn]]] = {}
        self._snapshots: tuple[Snapshot, Snapshot] | None = None
        self._still: Snapshot | None = None
        self._convolves = any(isinstance(m, nn.Conv2d) for m in potential.modules())

    @property
    def can_compile(self) -> bool:
        """Whether all gradients of the revision are in a closed form that a compiler makes faster."""
        with frozen(self.generator):
            closed = getattr(self.generator.network, "has_closed_form", False)
        plain = getattr(self.potential, "worth_compiling", False)
        return plain and (self.revision.target == "x" or closed)

    @property
    def is_compiled(self) -> bool:
        """Whether :meth:`compile` was asked for and has not failed."""
        return self._snapshots is not None

    def compile(self) -> None:
        """Compile at the next call, if possible."""
        if self.can_compile and self.revision.n_steps > 0:
            self._snapshots = Snapshot(self.potential), Snapshot(self.generator)

    def __call__(self, x: Tensor, h: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Revise ``(x, h)``.

        Under autocast, closed-form gradients of convolutions are computed in 16 bits; those of perceptrons are always
        in full precision, and positions always in 32 bits.

        Args:
            x: Where the chains start.
            h: Their codes.
            rng: Source of all randomness.
        """
        half = torch.is_autocast_enabled(x.device.type)
        mixed = half and not hasattr(self.potential, "gradient")
        with torch.autocast(x.device.type, torch.bfloat16, enabled=mixed):
            x, h, self.diagnostics = self._revised(x, h, rng, half)
        return x, h

    def _revised(self, x: Tensor, h: Tensor, rng: Rng, half: bool) -> Revised:
        if self._snapshots is None:
            return self._step_by_step(x, h, rng, half)
        potential, generator = self._snapshots
        potential.refresh()
        if self.revision.target != "x":
            generator.refresh()
        key = (x.shape, h.shape)
        if key not in self._compiled and not self._prepare(key, x, h):
            return self._step_by_step(x, h, rng, half)
        steps, shapes = self._compiled[key]
        with torch.no_grad():
            return steps(x, h, Tape.record(shapes, rng).draws)

    def _step_by_step(self, x: Tensor, h: Tensor, rng: Rng, half: bool) -> Revised:
        if x.ndim != 4 or not hasattr(self.potential, "gradient"):
            with frozen(self.potential, self.generator):
                return self.revision.revised(self.potential, self.generator, self.sampler, x, h, rng)
        # With the channels last, images and convolutions take a quarter less time on processors.
        self._still = self._still or Snapshot(self.potential)
        self._still.refresh()
        with frozen(self.generator):
            x = x.contiguous(memory_format=torch.channels_last)
            still = Half(self._still.copy) if half and self._convolves else self._still.copy
            found = self.revision.revised(still, self.generator, self.sampler, x, h, rng)
        return found._replace(x=found.x.contiguous())

    def _prepare(self, key: tuple[torch.Size, torch.Size], x: Tensor, h: Tensor) -> bool:
        """Compile for positions of these shapes; False if that fails, and it is not tried again then."""
        assert self._snapshots is not None
        potential, generator = (snapshot.copy for snapshot in self._snapshots)
        revision, sampler = self.revision, self.sampler

        def steps(x: Tensor, h: Tensor, draws: list[Tensor]) -> Revised:
            return revision.revised(potential, generator, sampler, x, h, Tape(draws))  # type: ignore[arg-type]

        with torch.no_grad():
            shapes = shapes_drawn(lambda rng: revision(potential, generator, sampler, x, h, rng), x.device)  # type: ignore[arg-type]
            example = (x, h, Tape.record(shapes, torch.Generator(x.device)).draws)
            compiled = compiled_once(steps, example, "the revision", "its steps are taken one by one")
        if compiled is None:
            self._snapshots = None
            return False
        self._compiled[key] = compiled, shapes
        return True


class Half(nn.Module):
    """A frozen potential whose closed-form gradient is computed in 16 bits.

    This is 2.4 times as fast for nine convolutions of 48 and 96 channels, on processors with 16-bit products.

    Args:
        potential: The potential, which is copied.

    Example:
        >>> from nrf.networks import OneClassCNNPotential
        >>> u = OneClassCNNPotential(width=4, norm="none").build((3, 16, 16)).requires_grad_(False)
        >>> Half(u).gradient(torch.zeros(2, 3, 16, 16)).dtype
        torch.float32
    """

    def __init__(self, potential: nn.Module) -> None:
        super().__init__()
        self.whole, self.copy = potential, copy.deepcopy(potential).to(torch.bfloat16)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.whole(x)
        return out

    def gradient(self, x: Tensor) -> Tensor:
        """``∇u`` row by row, as 32 bits."""
        found: Tensor = self.copy.gradient(x.to(torch.bfloat16))  # type: ignore[operator]
        return found.to(x.dtype)


def compiled_once(
    function: Callable[..., Any], example: tuple[Any, ...], what: str, instead: str, *, trusted: bool = False
) -> Any:
    """The function, compiled for arguments like these; None, with a warning, where the compiler is missing or fails.

    Args:
        function: What to compile.
        example: Example arguments.
        what: A name for the function, for the warning.
        instead: What happens if compilation fails, for the warning.
        trusted: Skip the compiler's checks at each call; the caller guarantees that nothing that it relied on changes
            (shapes, strides, types, modes of modules, numbers that are not tensors).
    """
    options: dict[str, Any] | None = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe} if trusted else None
    compiled = torch.compile(_with_code_of_its_own(function), dynamic=False, options=options)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled(*example)
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        log.warning("%s is not compiled (%s); %s", what, reason, instead)
        return None
    return compiled


def _with_code_of_its_own(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy with its own code object: the compiler counts per code object, and gives up after eight models."""

    def call(*args: Any) -> Any:
        return function(*args)

    return FunctionType(call.__code__.replace(), call.__globals__, call.__name__, None, call.__closure__)
