"""The two models that all other packages work with, and their closed forms.

The *potential* ``u`` defines ``p(x) ∝ exp u(x)``: higher means more normal. The *generator* is the latent-variable
model ``q(x, h) = q(h) N(x; g(h), σ² I)``.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from nrf.errors import InputError
from nrf.seeds import Rng, rand, randn

Prior = Literal["normal", "uniform"]


class Potential(Protocol):
    """A map from a batch ``(n, *event)`` to one number per row, ``(n,)``."""

    def __call__(self, x: Tensor) -> Tensor: ...


class Generator(Protocol):
    """A latent-variable model ``q(x, h)``, reduced to the gradients that Alg. 2 needs.

    ``∇_x log q(x, h)`` is ``pull(h)`` plus terms without ``h``; those cancel in Alg. 2.
    """

    def propose(self, n: int, rng: Rng) -> tuple[Tensor, Tensor]: ...

    def latent_gradient(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """``∇_h log q(x, h)``, and ``pull(h)``, which is computed on the way."""
        ...

    def pull(self, h: Tensor) -> Tensor: ...


class LatentGenerator(nn.Module):
    """``q(x, h) = q(h) N(x; g(h), σ² I)`` around any network ``g`` that maps ``(n, latent_dim)`` to ``(n, *event)``.

    Args:
        network: The mean ``g``.
        latent_dim: Size of ``h``.
        sigma: Standard deviation σ of ``x`` given ``h``. 0 makes the proposal deterministic given ``h``; the joint
            target then has no density, and building it is an error.
        prior: ``normal`` is the paper's N(0, I); ``uniform`` on [0, 1] is what one released script drew from.

    Example:
        >>> q = LatentGenerator(nn.Linear(2, 3), latent_dim=2, sigma=0.1)
        >>> x, h = q.propose(5, torch.Generator().manual_seed(0))
        >>> x.shape, h.shape
        (torch.Size([5, 3]), torch.Size([5, 2]))
    """

    def __init__(self, network: nn.Module, latent_dim: int, sigma: float, prior: Prior = "normal") -> None:
        super().__init__()
        if not 0 <= sigma < math.inf:
            raise InputError(f"sigma must be finite and not negative, got {sigma}")
        self.network = network
        self.latent_dim = latent_dim
        self.sigma = sigma
        self.prior = prior

    def forward(self, h: Tensor) -> Tensor:
        out: Tensor = self.network(h)
        return out.to(h.dtype)

    def sample_latent(self, n: int, rng: Rng) -> Tensor:
        """Draw ``n`` codes from the prior, on the device of ``rng``."""
        draw = randn if self.prior == "normal" else rand
        return draw((n, self.latent_dim), rng)

    def log_joint(self, x: Tensor, h: Tensor) -> Tensor:
        """``log q(x, h)`` up to the constant that depends on neither."""
        if self.sigma == 0:
            raise InputError("log q(x, h) does not exist for sigma = 0; give the generator a positive sigma")
        residual = (x - self(h)).flatten(1)
        log_joint: Tensor = -residual.square().sum(1) / (2 * self.sigma**2)
        if self.prior == "normal":
            log_joint = log_joint - h.square().sum(1) / 2
        return log_joint

    def latent_gradient(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """``J_g(h)ᵀ (x − g(h)) / σ² − h`` by one vector-Jacobian product, and ``g(h) / σ²``."""
        self.require_density()
        mean, pull_back = self._linearised(h)
        pulled_back = pull_back((x - mean) / self.sigma**2)
        return pulled_back - h, mean / self.sigma**2

    def _linearised(self, h: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The mean and its vector-Jacobian product: in closed form where the network has one, else by autograd."""
        if getattr(self.network, "has_closed_form", False):
            network: Any = self.network
            found: tuple[Tensor, Callable[[Tensor], Tensor]] = network.linearised(h)
            return found
        with torch.enable_grad():
            h = h.detach().requires_grad_(True)
            mean = self(h)
        return mean.detach(), lambda grad: torch.autograd.grad(mean, h, grad)[0]

    @torch.no_grad()
    def pull(self, h: Tensor) -> Tensor:
        """``g(h) / σ²``, the part of ``∇_x log q(x, h)`` that depends on ``h``."""
        pull: Tensor = self(h) / self.sigma**2
        return pull

    def require_density(self) -> None:
        """Revising ``h`` needs ``log q(x, h)`` and the normal prior."""
        if self.sigma <= 0:
            raise InputError("revising h needs a generator with sigma > 0; set its sigma, or revise x only")
        if self.prior != "normal":
            raise InputError("revising h needs the normal prior; set the generator's prior, or revise x only")

    def draw(self, n: int, rng: Rng) -> tuple[Tensor, Tensor]:
        """Ancestral sampling that keeps the autograd graph: ``h`` from the prior, then ``x`` from ``q(x | h)``."""
        h = self.sample_latent(n, rng)
        x = self(h)
        if self.sigma > 0:
            x = x + self.sigma * randn(x.shape, rng)
        return x, h

    @torch.no_grad()
    def propose(self, n: int, rng: Rng) -> tuple[Tensor, Tensor]:
        """Ancestral sampling without a graph: the rows at which chains start."""
        return self.draw(n, rng)


def replicas_of(module: object) -> int:
    """How many models a module holds: 1, or the number that :func:`nrf.networks.stack` combined."""
    return int(getattr(module, "replicas", 1))


def apart(rows: Tensor, replicas: int) -> Tensor:
    """Rows with the replicas as a leading dimension."""
    return rows.reshape(replicas, -1, *rows.shape[1:])


def joined(replicas: int, *batches: Tensor) -> Tensor:
    """Several batches as one, in which all rows of a replica stand together."""
    return torch.cat([apart(batch, replicas) for batch in batches], 1).flatten(0, 1)


def together(potential: Potential, *batches: Tensor, replicas: int | None = None) -> list[Tensor]:
    """The potential of several batches in one pass: half the overhead, and shared statistics in batch norm."""
    n = replicas_of(potential) if replicas is None else replicas
    values = apart(potential(joined(n, *batches)), n)
    return [part.flatten() for part in torch.split(values, [len(batch) // n for batch in batches], 1)]


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """Freeze parameters: no gradient with respect to them, evaluation mode, and normalised weights computed once.

    Parameters do not change during a revision, so weight and spectral norm need one evaluation for all its steps, and
    the graph need only reach the input. Evaluation mode makes batch norm a fixed function of one row (running
    statistics), so that chains in a batch do not influence each other.
    """
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(_without_gradients(module))
            stack.enter_context(in_evaluation_mode(module))
            stack.enter_context(_computed_once(module))
        yield


@contextmanager
def _without_gradients(module: nn.Module) -> Iterator[None]:
    trained = [p for p in module.parameters() if p.requires_grad]
    for p in trained:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in trained:
            p.requires_grad_(True)


class _Once:
    """The value of a parametrised weight, computed at the first call; a copy of the module computes its own."""

    def __init__(self, weight: parametrize.ParametrizationList) -> None:
        self.weight = weight
        self.value: Tensor | None = None

    def __call__(self) -> Tensor:
        if self.value is None:
            self.value = type(self.weight).forward(self.weight)
        return self.value

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[[], Tensor]:
        return MethodType(type(self.weight).forward, copy.deepcopy(self.weight, memo))


@contextmanager
def _computed_once(module: nn.Module) -> Iterator[None]:
    """Cache the normalised weights of this module alone; ``parametrize.cached`` would do so for all threads."""
    weights = [part for part in module.modules() if isinstance(part, parametrize.ParametrizationList)]
    held = [weight for weight in weights if not isinstance(weight.__dict__.get("forward"), _Once)]
    for weight in held:
        weight.__dict__["forward"] = _Once(weight)
    try:
        yield
    finally:
        for weight in held:
            del weight.__dict__["forward"]


@contextmanager
def in_evaluation_mode(*modules: nn.Module) -> Iterator[None]:
    """Put all parts of these modules into evaluation mode; afterwards each part is in its former mode again."""
    training = [part for module in modules for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def gradient(u: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``∇u`` row by row, for a potential whose rows do not interact, by its own ``gradient`` method if it has one.

    Example:
        >>> gradient(lambda x: -x.square().sum(1) / 2, torch.tensor([[1.0, -2.0]]))
        tensor([[-1.,  2.]])
    """
    closed_form: Callable[[Tensor], Tensor] | None = getattr(u, "gradient", None)
    if closed_form is not None:
        return closed_form(x)
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        (grad,) = torch.autograd.grad(u(x).sum(), x)
    return grad


def value_and_gradient(u: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """``u`` and ``∇u`` row by row from one evaluation, where rows do not interact.

    A potential's own ``value_and_gradient`` or ``gradient`` is used, if it has one.

    Example:
        >>> value_and_gradient(lambda x: -x.square().sum(1) / 2, torch.tensor([[1.0, -2.0]]))
        (tensor([-2.5000]), tensor([[-1.,  2.]]))
    """
    both: Callable[[Tensor], tuple[Tensor, Tensor]] | None = getattr(u, "value_and_gradient", None)
    if both is not None:
        return both(x)
    if hasattr(u, "gradient"):
        with torch.no_grad():
            return u(x), gradient(u, x)
    with torch.enable_grad():
        x = x.detach().requires_grad_(True)
        value = u(x)
        (grad,) = torch.autograd.grad(value.sum(), x)
    return value.detach(), grad
