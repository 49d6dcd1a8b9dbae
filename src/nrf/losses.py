"""Loss functions: one for each equation of the paper, and those of noise levels. Tensors in, a scalar out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def potential_loss(u_data: Tensor, u_model: Tensor) -> Tensor:
    """``E_p[u(x)] − E_data[u(x̃)]``: gradient descent on it ascends the log-likelihood (Alg. 1, the step in θ).

    Args:
        u_data: Potentials of data.
        u_model: Potentials of samples of the model.
    """
    return u_model.mean() - u_data.mean()


def control_loss(u_data: Tensor) -> Tensor:
    """The potential control ``E_data[u(x̃)²]``, which keeps the values of ``u`` near zero (appendix, regularisation).

    Args:
        u_data: Potentials of data.
    """
    return u_data.square().mean()


def likelihood_loss(u_data: Tensor, u_model: Tensor, control_weight: float) -> Tensor:
    """The potential's total loss: :func:`potential_loss` plus α_p times :func:`control_loss`.

    Args:
        u_data: Potentials of data.
        u_model: Potentials of samples of the model.
        control_weight: α_p.
    """
    loss = potential_loss(u_data, u_model)
    return loss + control_weight * control_loss(u_data) if control_weight > 0 else loss


def regression_loss(x: Tensor, mean: Tensor) -> Tensor:
    """``E‖x − g(h)‖²`` over revised pairs: the inclusive step in φ (Alg. 1).

    The factor 1/(2σ²) is left to the learning rate.

    Args:
        x: Revised samples.
        mean: ``g(h)`` at their revised codes.
    """
    return (x - mean).flatten(1).square().sum(1).mean()


def adversarial_loss(u_generated: Tensor) -> Tensor:
    """``−E[u(g(h))]``: the step in φ when one noise-free revision step is linearised (appendix, connection to GANs).

    Args:
        u_generated: Potentials of generated samples.
    """
    return -u_generated.mean()


def score_loss(score: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:
    """Denoising score matching ``½ E‖σ ∇u(x̃ + σε, σ) + ε‖²``, smallest where ``∇u`` is the score of the blurred data.

    Args:
        score: ``∇u`` at the blurred rows.
        noise: The noise ε that blurred them, of the same shape.
        sigma: The noise level of each row, in a shape that broadcasts with ``score``.
    """
    return (sigma * score + noise).flatten(1).square().sum(1).mean() / 2


def level_loss(u: Tensor, levels: Tensor, u_known: Tensor, known_of_rows: Tensor, known_of_known: Tensor) -> Tensor:
    """Cross-entropy of classifying which noise level a row was blurred by; a known density is one more class.

    All classes have the same prior probability, so the best logits are the log-densities of the levels, up to one
    constant for all of them. That constant is 0, since the logit of the known density is fixed.

    Args:
        u: Potentials of blurred rows at every level, ``(n, levels)``.
        levels: The level of each row; all levels equally often.
        u_known: Potentials at every level of draws from the known density; there may be any number of draws.
        known_of_rows: The known log-density of the rows.
        known_of_known: The known log-density of its own draws.
    """
    n_levels = u.shape[1]
    of_rows = cross_entropy(torch.cat([u, known_of_rows[:, None]], 1), levels)
    own = torch.full_like(known_of_known, n_levels, dtype=torch.long)
    of_known = cross_entropy(torch.cat([u_known, known_of_known[:, None]], 1), own)
    return (n_levels * of_rows + of_known) / (n_levels + 1)
