"""The product of fields: ``log p(x) = Σ_i w_i u_i(x) − log Z``, a field like any other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.fields.normaliser import Integral, importance_integral
from nrf.fields.references import ReferenceMeasure
from nrf.models import frozen, gradient, value_and_gradient
from nrf.samplers import Position, Sampler, run
from nrf.seeds import Rng


class ProductField(nn.Module):
    """The product of several fields, each to the power of its weight.

    The fields are learned separately. As a module the product is a potential, so it can be used wherever a potential
    can: in samplers, targets and explanations. Until :meth:`normalise` has found Z, 1 is used in its place.

    Args:
        experts: Potentials: networks, references (which are potentials, too), or products.
        weights: One per expert, not negative; one half each gives two fields equal weight.

    Example:
        >>> from nrf.fields.references import GaussianReference
        >>> r = GaussianReference().build((2,))
        >>> x = torch.ones(1, 2)
        >>> bool(torch.isclose(ProductField([r, r], [0.5, 0.5])(x), r(x)))
        True
    """

    weights: Tensor
    log_normaliser: Tensor
    known: Tensor

    def __init__(self, experts: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        if len(experts) == 0 or len(experts) != len(weights):
            raise InputError(f"a product needs a weight for each expert, got {len(experts)} and {len(weights)}")
        if not all(0 <= weight < math.inf for weight in weights) or not any(weights):
            raise InputError(f"weights must be finite and not negative, and one of them positive, got {list(weights)}")
        self.experts = nn.ModuleList(experts)
        self.register_buffer("weights", torch.tensor(weights, dtype=torch.float64))
        self.register_buffer("log_normaliser", torch.zeros((), dtype=torch.float64))
        self.register_buffer("known", torch.zeros((), dtype=torch.bool))

    @property
    def is_normalised(self) -> bool:
        """Whether Z was found, so that values are in nats."""
        return bool(self.known)

    def forward(self, x: Tensor) -> Tensor:
        total = x.new_full((len(x),), -float(self.log_normaliser))
        for weight, expert in self._parts():
            total = total + weight * expert(x)
        return total

    def gradient(self, x: Tensor) -> Tensor:
        """``Σ w_i ∇u_i``, each in closed form where the expert has one."""
        total = torch.zeros_like(x)
        for weight, expert in self._parts():
            total = total + weight * gradient(expert, x)
        return total

    def value_and_gradient(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """``log p`` and its gradient, from one evaluation of each expert."""
        value, slope = x.new_full((len(x),), -float(self.log_normaliser)), torch.zeros_like(x)
        for weight, expert in self._parts():
            u, du = value_and_gradient(expert, x)
            value, slope = value + weight * u, slope + weight * du
        return value, slope

    def normalise(
        self,
        measure: ReferenceMeasure,
        rng: torch.Generator,
        *,
        n_draws: int = 16_384,
        sigmas: Sequence[float] = (0.0,),
    ) -> Integral:
        """Find Z by importance sampling from a reference (:func:`nrf.fields.importance_integral`).

        A product with weights below 1 has wider tails than its experts, so blurred references should be among the
        proposals: give them ``sigmas`` such as ``(0, s)``, with s of the size of the data's spread.

        Args:
            measure: A fitted reference, such as an expert.
            rng: Source of all randomness.
            n_draws: Total number of draws.
            sigmas: Noise levels that the reference is blurred by, each in an equal share of the draws.

        Returns:
            Z with the standard error of its logarithm.
        """
        with frozen(self):
            found = importance_integral(self._unnormalised, measure, rng, n_draws=n_draws, sigmas=sigmas)
        if not math.isfinite(found.log_value):
            raise InputError(f"the integral of this product is not finite: its logarithm is {found.log_value}")
        self.set_normaliser(found.log_value)
        return found

    def set_normaliser(self, log_value: float) -> None:
        """Set log Z to a value that was found before."""
        self.log_normaliser.fill_(log_value)
        self.known.fill_(True)

    def revise(self, x: Tensor, sampler: Sampler, n_steps: int, rng: Rng) -> Tensor:
        """Move rows by sampler steps along this field.

        Args:
            x: Where the chains start.
            sampler: Any sampler.
            n_steps: Number of steps.
            rng: Source of all randomness.
        """
        with frozen(self):
            return run(sampler, (x,), _Target(self), n_steps, rng).position[0]

    def _parts(self) -> list[tuple[float, nn.Module]]:
        return [(weight, expert) for weight, expert in zip(self.weights.tolist(), self.experts, strict=True) if weight]

    def _unnormalised(self, x: Tensor) -> Tensor:
        found: Tensor = self(x)
        return found + float(self.log_normaliser)


class _Target:
    """The product as the target of a sampler."""

    exact = True

    def __init__(self, product: ProductField) -> None:
        self.product = product

    def __call__(self, position: Position, l: int) -> Position:
        return (self.product.gradient(position[0]),)

    def value_and_gradient(self, position: Position) -> tuple[Tensor, Position]:
        value, slope = self.product.value_and_gradient(position[0])
        return value, (slope,)
