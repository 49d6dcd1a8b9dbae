"""The algorithm as a script has it: what our iterations are compared with.

Each step of the revision differentiates the whole module, its normalisation and its parameters included.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.learners import InclusiveConfig
from nrf.losses import control_loss, potential_loss, regression_loss
from nrf.runs.spec import Preset
from nrf.samplers import SGHMC, SGLD


def plain_revision(u: nn.Module, sampler: SGLD | SGHMC, x: Tensor, n_steps: int) -> Tensor:
    """Steps of x along the potential, each with a backward pass through everything."""
    keep, lost = (1 - sampler.friction, sampler.friction) if isinstance(sampler, SGHMC) else (0.0, 1.0)
    deviation = (2 * lost * sampler.step_size * sampler.temperature) ** 0.5
    x = x.detach()
    v = torch.zeros_like(x)
    for _ in range(n_steps):
        x.requires_grad_(True)
        u.zero_grad()
        u(x).sum().backward()
        v = keep * v + sampler.step_size * x.grad  # type: ignore[operator]
        if deviation > 0:
            v = v + deviation * torch.randn_like(v)
        x = (x + v).detach()
        if sampler.box is not None:
            x = x.clamp(*sampler.box)
    return x


def plain_iteration(preset: Preset, data: Tensor) -> Callable[[], None]:
    """Alg. 1 with x revised alone, in a plain loop; one iteration a call."""
    sampler, config, size = preset.sampler, preset.learner, preset.train.batch_size
    if (
        preset.revision.target != "x"
        or not isinstance(sampler, SGLD | SGHMC)
        or not isinstance(config, InclusiveConfig)
    ):
        raise InputError("the plain loop is written for inclusive learning with SGLD or SGHMC steps of x")
    modules = preset.build(data, preset.seeds).modules
    for network in modules.values():
        network.apply(_with_torch_tanh)
    u, q = modules["potential"], modules["generator"]
    for_u, for_q = (_optimizer(m, config, lr) for m, lr in ((u, config.potential_lr), (q, config.generator_lr)))

    def iterate() -> None:
        batch = data[torch.randint(len(data), (size,))]
        h = torch.randn(size, preset.generator.latent_dim)
        x = plain_revision(u, sampler, q(h), preset.revision.n_steps)
        for_u.zero_grad()
        u_data, u_samples = u(batch), u(x)
        loss = potential_loss(u_data, u_samples)
        if config.control_weight > 0:
            loss = loss + config.control_weight * control_loss(u_data)
        loss.backward()  # type: ignore[no-untyped-call]
        for_u.step()
        for_q.zero_grad()
        regression_loss(x, q(h)).backward()  # type: ignore[no-untyped-call]
        for_q.step()

    return iterate


def _with_torch_tanh(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.Tanh):
            setattr(module, name, nn.Tanh())


def _optimizer(module: nn.Module, config: InclusiveConfig, lr: float) -> torch.optim.Optimizer:
    if config.optimizer == "adam":
        return torch.optim.Adam(module.parameters(), lr=lr, betas=config.betas)
    return torch.optim.RMSprop(module.parameters(), lr=lr, alpha=config.betas[1], momentum=config.betas[0])
