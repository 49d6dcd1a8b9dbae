"""A function for each equation of the paper, and those of noise levels. Pure: tensors in, a scalar out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


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


def score_loss(score: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:
    """Denoising score matching ``½ E‖σ ∇u(x̃ + σε, σ) + ε‖²``: least where ``∇u`` is the score of the blurred data."""
    return (sigma * score + noise).flatten(1).square().sum(1).mean() / 2


def level_loss(u: Tensor, levels: Tensor, u_known: Tensor, known_of_rows: Tensor, known_of_known: Tensor) -> Tensor:
    """Cross-entropy of which level a row was blurred by, a known density being one more class.

    All classes are equally likely beforehand, so the best logits are the log-densities of the levels, each up to what
    is added to all; that is 0, since the known density's logit is what it is.

    Args:
        u: Potentials of blurred rows at every level, ``(n, levels)``.
        levels: The level of each row; all levels equally often.
        u_known: Potentials of draws of the known density, of which there may be any number.
        known_of_rows: The known log-density of the rows.
        known_of_known: The known log-density of its own draws.
    """
    n_levels = u.shape[1]
    of_rows = cross_entropy(torch.cat([u, known_of_rows[:, None]], 1), levels)
    own = torch.full_like(known_of_known, n_levels, dtype=torch.long)
    of_known = cross_entropy(torch.cat([u_known, known_of_known[:, None]], 1), own)
    return (n_levels * of_rows + of_known) / (n_levels + 1)
