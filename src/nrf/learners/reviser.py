"""Revision as learners call it, step by step or compiled."""

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
    """Revises with the networks as they are now.

    Compiled, all steps are one function of position and noise, so the noise is drawn before, in the same order. Where
    the compiler is missing or fails, the steps are taken one by one, and that is said once.

    Args:
        potential: ``u``.
        generator: ``q(x, h)``.
        sampler: Any sampler.
        revision: Target and length.

    Attributes:
        diagnostics: What the sampler said about the chains of the last call, such as ``acceptance``.
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
        """Compile at the next call, if it can be done."""
        if self.can_compile and self.revision.n_steps > 0:
            self._snapshots = Snapshot(self.potential), Snapshot(self.generator)

    def __call__(self, x: Tensor, h: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Revise ``(x, h)``.

        Closed-form gradients of perceptrons are in full precision whatever surrounds the call, those of convolutions in
        16 bits where products are; positions are in 32 bits always.
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
        # Images and convolutions with the channels last: a quarter less time on processors.
        self._still = self._still or Snapshot(self.potential)
        self._still.refresh()
        with frozen(self.generator):
            x = x.contiguous(memory_format=torch.channels_last)
            still = Half(self._still.copy) if half and self._convolves else self._still.copy
            found = self.revision.revised(still, self.generator, self.sampler, x, h, rng)
        return found._replace(x=found.x.contiguous())

    def _prepare(self, key: tuple[torch.Size, torch.Size], x: Tensor, h: Tensor) -> bool:
        """Compile for positions of these shapes; False if it does not work, and then never again."""
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
    """A potential with a closed form, held still, whose gradient is computed in 16 bits: 2.4 times as fast for nine
    convolutions of 48 and 96 channels, where the processor has such products.

    Args:
        potential: What is copied.

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
        example: Arguments.
        what: The function in words, for the warning.
        instead: What happens if it does not work, for the warning.
        trusted: The caller sees to it that nothing the compiler relied on changes (shapes, strides, types, modes of
            modules, numbers that are no tensors): calls are not checked for it.
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
    """The same function, unknown to the compiler: it counts by code, and gives up after eight models of a process."""

    def call(*args: Any) -> Any:
        return function(*args)

    return FunctionType(call.__code__.replace(), call.__globals__, call.__name__, None, call.__closure__)
