"""One function an equation of the paper. Pure: tensors in, a scalar out, no optimiser."""

from __future__ import annotations

from torch import Tensor


def potential_loss(u_data: Tensor, u_model: Tensor) -> Tensor:
    """Descending this ascends the log-likelihood: ``E_p[u(x)] − E_data[u(x̃)]`` (Alg. 1, the step in θ)."""
    return u_model.mean() - u_data.mean()


def control_loss(u_data: Tensor) -> Tensor:
    """The potential control ``E_data[u(x̃)²]`` that keeps the level of ``u`` near zero (appendix, regularisation)."""
    return u_data.square().mean()


def likelihood_loss(u_data: Tensor, u_model: Tensor, control_weight: float) -> Tensor:
    """The potential's whole loss: the likelihood's step, and α_p times the potential control."""
    loss = potential_loss(u_data, u_model)
    return loss + control_weight * control_loss(u_data) if control_weight > 0 else loss


def regression_loss(x: Tensor, mean: Tensor) -> Tensor:
    """``E‖x − g(h)‖²`` over revised pairs: the inclusive step in φ, with 1/(2σ²) left to the learning rate (Alg. 1)."""
    return (x - mean).flatten(1).square().sum(1).mean()


def adversarial_loss(u_generated: Tensor) -> Tensor:
    """``−E[u(g(h))]``: the step in φ when one noise-free revision step is linearised (appendix, connection to GANs)."""
    return -u_generated.mean()
