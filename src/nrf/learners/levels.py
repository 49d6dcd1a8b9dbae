"""Learning a field at many noise levels: denoising score matching, and classification of the levels.

No sampler is needed. For a row blurred by ``σ_k ε``, the network learns two things: where it came from (the score),
and at which level it was blurred (the classification). The first gives the shape of each level's density, but not the
weights of separate modes; the second ties the levels together, and all of them to one more class, a Gaussian whose
density is known. So the outputs are log-densities in nats, with nothing left to normalise.

Related work: noise-conditional energies trained by denoising score matching (Li et al., "Learning Energy-Based Models
in High-Dimensional Spaces with Multi-scale Denoising Score Matching"), telescoping density ratios (Rhodes et al.), and
noise levels distinguished by a classifier (Yadin et al., "Classification Diffusion Models").
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from nrf.errors import InputError
from nrf.fields import ReferencedLevels, draw_widest, flow
from nrf.learners.base import Learner, Metrics, checked
from nrf.learners.inclusive import Inclusive, InclusiveConfig, Proposal
from nrf.learners.revision import Revision
from nrf.losses import level_loss, likelihood_loss, score_loss
from nrf.models import LatentGenerator, apart, frozen, joined, together
from nrf.networks import NoiseLevelPotential, require_levels
from nrf.samplers import Sampler
from nrf.seeds import Rng, rand, randn


@dataclass(frozen=True)
class LevelsConfig(InclusiveConfig):
    """Score matching and classification at every noise level; the generator, if it is trained, as in Alg. 1."""

    generator_optional: ClassVar[bool] = True

    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's (β1, β2)."""
    potential_lr: float = 2e-3
    """Learning rate of the potential; let it fall to 0 with `--train.lr-final 0`."""
    generator_lr: float = 0.0
    """Learning rate of the generator; at 0 it is not trained, and nothing is sampled."""
    pairs: Literal["proposals", "flow"] = "proposals"
    """Where the revision of a pair (x, h) starts: at the generator's proposal (Alg. 1), or where the probability flow
    takes the code itself, as a draw of the widest level. The flow reaches every mode, whatever g has learned."""
    score_weight: float = 1.0
    """Weight of denoising score matching."""
    level_weight: float = 1.0
    """Weight of the classification of levels."""
    likelihood_weight: float = 0.0
    """Weight of maximum likelihood at the smallest level, on revised samples: a refinement that costs a revision."""

    def __post_init__(self) -> None:
        super().__post_init__()
        weights = (self.score_weight, self.level_weight, self.likelihood_weight)
        if not all(0 <= weight < math.inf for weight in weights) or self.level_weight == 0:
            raise InputError(
                "weights must be finite and not negative, that of the levels positive (it alone makes the field "
                f"normalised), got {self.score_weight}, {self.level_weight} and {self.likelihood_weight}"
            )
        if self.control_weight > 0 and self.likelihood_weight == 0:
            raise InputError("control_weight belongs to the likelihood; set likelihood_weight, too")
        if self.pairs == "flow" and (self.generator_lr == 0 or self.generator_loss != "regression"):
            raise InputError("pairs by the flow are for a generator: set generator_lr, and generator_loss regression")

    @property
    def samples(self) -> bool:
        """Whether an iteration revises samples."""
        return self.generator_lr > 0 or self.likelihood_weight > 0

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        return Levels(potential, generator, sampler, revision, self)


class Levels(Inclusive):
    """One iteration: step the potential on blurred rows; if configured, propose, revise down the levels, step g.

    Args:
        potential: A noise-level potential.
        generator: ``q(x, h)``; trained if its learning rate is not 0.
        sampler: Any sampler.
        revision: Target and length of the revision, and the level that it starts at.
        config: Losses and optimisers.
    """

    config: LevelsConfig

    def __init__(
        self,
        potential: nn.Module,
        generator: LatentGenerator,
        sampler: Sampler,
        revision: Revision,
        config: LevelsConfig,
    ) -> None:
        require_levels(potential)
        if config.samples and config.generator_lr == 0 and revision.target != "x":
            raise InputError("without a trained generator there are no codes: set the revision's target to x")
        if config.pairs == "flow":
            _check_codes(generator, require_levels(potential).reference.variances.shape[-1])
        super().__init__(potential, generator, sampler, revision, config)

    @property
    def field(self) -> NoiseLevelPotential:
        """The potential, as a noise-level potential."""
        return require_levels(self.potential)

    def compile(self) -> bool:
        """Nothing is compiled: at 2 to 4 ms per iteration, that would not save the half minute that it takes."""
        return False

    def samples(self, batch: Tensor, rng: Rng) -> Tensor:
        if self.config.generator_lr == 0:
            return self._from_widest(batch, rng)
        if self.config.pairs == "proposals":
            return super().samples(batch, rng)
        h = self.generator.sample_latent(len(batch), rng)
        return self.revise(self._flowed(h, batch), h, rng)[0]

    def revised(self, proposal: Proposal, rng: Rng) -> tuple[Tensor, Tensor]:
        if self.config.pairs == "flow":
            proposal = replace(proposal, x=self._flowed(proposal.h, proposal.x))
        return super().revised(proposal, rng)

    def update(self, batch: Tensor, rng: Rng) -> Metrics:
        if self.config.data_noise > 0:
            batch = batch + self.config.data_noise * randn(batch.shape, rng, batch.dtype)
        if not self.config.samples:
            return checked(self._step_potential(batch, None, rng), batch=batch)
        if self.config.generator_lr == 0:
            x = self._from_widest(batch, rng)
            return checked(self._step_potential(batch, x, rng), batch=batch, revised_samples=x)
        proposal = self.propose(len(batch), rng)
        x, h = self.revised(proposal, rng)
        metrics = self._step_potential(batch, x, rng)
        metrics |= {"generator_loss": self.step_generator(proposal, x, h, rng)}
        metrics |= {"revision_distance": (x - proposal.x).flatten(1).norm(dim=1).mean()}
        tensors = {"batch": batch, "proposed_samples": proposal.x, "revised_samples": x, "revised_codes": h}
        return checked(metrics, **tensors)

    def losses(self, batch: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Score matching and classification of a batch, each row at one level."""
        field = self.field
        levels = spread_levels(len(batch), field.n_levels, self.replicas, rng).to(batch.device)
        sigma = batch.new_tensor(field.sigmas)[levels].view(-1, *(1,) * (batch.ndim - 1))
        noise = randn(batch.shape, rng, batch.dtype)
        blurred = (batch + sigma * noise).requires_grad_(True)
        n_known = self.replicas * max(1, round(len(batch) / self.replicas / field.n_levels))
        known = draw_widest(field, n_known, batch, rng)
        rows = joined(self.replicas, blurred, known)
        split = [len(blurred) // self.replicas, n_known // self.replicas]
        with torch.enable_grad():
            values = torch.split(apart(self._levels(rows, levels, batch, known), self.replicas), split, 1)
            u, u_known = (part.flatten(0, 1) for part in values)
            own = u.gather(1, levels[:, None])
            (score,) = torch.autograd.grad(own.sum(), blurred, create_graph=True)
        by_known = field.known(blurred.detach()), field.known(known)
        return score_loss(score, noise, sigma), level_loss(u, levels, u_known, *by_known)

    def _levels(self, rows: Tensor, levels: Tensor, batch: Tensor, known: Tensor) -> Tensor:
        """All levels of blurred and known rows; a reference leaves out the kernel that is centred at a row itself."""
        field = self.field
        if not isinstance(field, ReferencedLevels):
            return field.levels(rows)
        own, nobody = field.measure.own(batch), levels.new_full((len(known),), -1)
        kernels = None if own is None else joined(self.replicas, own, nobody)
        return field.levels_to_learn(rows, joined(self.replicas, levels, nobody + 1), kernels)

    def _step_potential(self, batch: Tensor, samples: Tensor | None, rng: Rng) -> Metrics:
        config = self.config
        score, level = self.losses(batch, rng)
        loss = config.score_weight * score + config.level_weight * level
        metrics = {"score_loss": score.detach(), "level_loss": level.detach()}
        if samples is not None and config.likelihood_weight > 0:
            smoothed = batch + self.field.sigmas[0] * randn(batch.shape, rng, batch.dtype)
            u_data, u_samples = together(self.potential, smoothed, samples)
            loss = loss + config.likelihood_weight * likelihood_loss(u_data, u_samples, config.control_weight)
            metrics |= {"u_data": u_data.detach().mean(), "u_revised": u_samples.detach().mean()}
        self.descend(loss, "potential")
        return metrics | {"potential_loss": loss.detach()}

    def _flowed(self, h: Tensor, like: Tensor) -> Tensor:
        """Take codes along the probability flow, down to the level at which the revision starts."""
        field = self.field
        noise = h[:, : like[0].numel()].reshape(like.shape).to(like.dtype)
        with frozen(field), torch.autocast(h.device.type, enabled=False):
            widest = field.reference.shaped(noise, field.sigmas[-1])
            return flow(field, widest, start=field.n_levels - 1, stop=self.revision.levels_of(field) - 1)

    def _from_widest(self, batch: Tensor, rng: Rng) -> Tensor:
        """One sample per row of a batch, revised from draws of the widest level's Gaussian."""
        return self.revise(draw_widest(self.field, len(batch), batch, rng), batch.new_zeros(0), rng)[0]


def _check_codes(generator: LatentGenerator, size: int) -> None:
    """Require codes that the flow can start from: Gaussian, and at least as long as a row."""
    if generator.prior != "normal" or generator.latent_dim < size:
        raise InputError(
            f"pairs by the flow need codes of N(0, I) with a value for each of a row's {size}, got latent_dim "
            f"{generator.latent_dim} and the prior {generator.prior}"
        )


def spread_levels(n: int, n_levels: int, replicas: int, rng: Rng) -> Tensor:
    """A level for each of ``n`` rows, spread as evenly as possible, with one random number per replica.

    Args:
        n: Number of rows, over all replicas together.
        n_levels: Number of levels.
        replicas: Number of replicas.
        rng: Source of all randomness.

    Example:
        >>> levels = spread_levels(6, 3, 1, torch.Generator().manual_seed(0))
        >>> sorted(levels.tolist())
        [0, 0, 1, 1, 2, 2]
    """
    share = n // replicas
    first = rand((replicas,), rng)[:, None]
    places = (torch.arange(share, device=first.device) + first) / share
    return (n_levels * places).floor().long().clamp_max(n_levels - 1).flatten()
