"""Sample revision (Alg. 2): L sampler steps from the generator's proposals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor, nn

from nrf.errors import InputError
from nrf.fields import anneal
from nrf.learners.first_layer import first_layer, revise_through
from nrf.models import LatentGenerator, Potential
from nrf.networks import NoiseLevelPotential, require_levels
from nrf.samplers import CoopNet, GradFn, Position, Sampler, run
from nrf.seeds import Rng
from nrf.targets import ConditionalTarget, JointTarget, PotentialTarget

Target = Literal["x", "joint", "conditional"]


class Revised(NamedTuple):
    """Result of a revision.

    Attributes:
        x: Revised events.
        h: Their codes; unchanged if x alone is revised.
        diagnostics: The sampler's diagnostics of its chains, such as ``acceptance`` (:meth:`Sampler.diagnostics`).
    """

    x: Tensor
    h: Tensor
    diagnostics: dict[str, Tensor]


@dataclass(frozen=True)
class Revision:
    """How samples are revised, apart from the sampler itself.

    The caller freezes the models with :func:`nrf.models.frozen`.
    """

    n_steps: int = 10
    """Sampler steps L of a training iteration."""
    target: Target = "x"
    """What is revised: x along the potential alone; x and h jointly (Alg. 2); or each by its own gradient (CoopNet)."""
    n_inner: int = 1
    """Joint target: inner Langevin moves of h*."""
    inner_step_size: float | None = None
    """Joint target: step size of those moves; that of h in the sampler if not given."""
    inner_temperature: float = 1.0
    """Joint target: scales the variance of the inner noise."""
    start_level: int = 0
    """Noise-level potentials: the level that a revision starts at, counted from the smallest noise; −1 is the widest.
    It goes down to the smallest, with n_steps at each level and step sizes that grow with the level's variance."""
    sample_steps: int | None = None
    """Sampler steps when the trained model is sampled; as in training if not given."""

    def __post_init__(self) -> None:
        for name in ("n_steps", "sample_steps"):
            steps = getattr(self, name)
            if steps is not None and steps < 0:
                raise InputError(f"{name} must not be negative, got {steps}")

    def check(self, sampler: Sampler, generator: LatentGenerator) -> None:
        """Check that sampler, generator and target fit, before anything has been written or trained.

        Args:
            sampler: Any sampler.
            generator: ``q(x, h)``.

        Raises:
            InputError: They do not fit.
        """
        if self.n_inner < 1 or (self.inner_step_size is not None and not self.inner_step_size > 0):
            raise InputError(
                f"n_inner must be at least 1 and inner_step_size positive, got {self.n_inner}, {self.inner_step_size}"
            )
        if isinstance(sampler, CoopNet) != (self.target == "conditional"):
            raise InputError(
                "the sampler coopnet and the target conditional belong together: set --revision.target conditional "
                "with sampler:coopnet, and x or joint with any other sampler"
            )
        if self.target == "joint" and sampler.exact:
            needs = "accepts or rejects by the log-density" if sampler.adjusted else "is defined by exact gradients"
            raise InputError(
                f"{type(sampler).__name__} {needs} and the joint target gives stochastic gradients alone; "
                "use sampler:sgld or sampler:sghmc, or --revision.target x"
            )
        if self.target != "x":
            generator.require_density()

    def __call__(
        self,
        potential: nn.Module,
        generator: LatentGenerator,
        sampler: Sampler,
        x: Tensor,
        h: Tensor,
        rng: Rng,
    ) -> tuple[Tensor, Tensor]:
        """Revise ``(x, h)`` as :meth:`revised` does, without diagnostics."""
        return self.revised(potential, generator, sampler, x, h, rng)[:2]

    def revised(
        self,
        potential: nn.Module,
        generator: LatentGenerator,
        sampler: Sampler,
        x: Tensor,
        h: Tensor,
        rng: Rng,
    ) -> Revised:
        """Revise ``(x, h)``; the result has diagnostics of the chains, too.

        Args:
            potential: ``u``.
            generator: ``q(x, h)``; not used with target ``x``.
            sampler: Any sampler that fits the target.
            x: Where the chains start.
            h: Their codes; returned unchanged with target ``x``.
            rng: Source of all randomness.
        """
        position: Position = (x,) if self.target == "x" else (x, h)
        if self.start_level != 0:
            field = require_levels(potential)
            found = anneal(
                field,
                sampler,
                position,
                self.n_steps,
                rng,
                start=self.levels_of(field) - 1,
                target=lambda level: self._target(level, generator, sampler, rng),
            )
            return Revised(found[0], found[1] if len(found) > 1 else h, {})
        if self.target == "x" and (layer := first_layer(potential, sampler)) is not None:
            return Revised(revise_through(layer, potential, sampler, x, self.n_steps, rng), h, {})
        chain = run(sampler, position, self._target(potential, generator, sampler, rng), self.n_steps, rng)
        diagnostics = sampler.diagnostics(chain) if self.n_steps > 0 else {}
        return Revised(chain.position[0], chain.position[1] if len(chain.position) > 1 else h, diagnostics)

    def levels_of(self, potential: NoiseLevelPotential) -> int:
        """Number of levels that a revision of this potential goes through."""
        n = potential.n_levels
        if not -n <= self.start_level < n:
            raise InputError(f"start_level must be from 0 to {n - 1}, or −1 for the widest, got {self.start_level}")
        return self.start_level % n + 1

    def _target(self, potential: Potential, generator: LatentGenerator, sampler: Sampler, rng: Rng) -> GradFn:
        match self.target:
            case "x":
                return PotentialTarget(potential)
            case "conditional":
                return ConditionalTarget(potential, generator)
            case "joint":
                inner = sampler.step_sizes(0, 2)[1] if self.inner_step_size is None else self.inner_step_size
                return JointTarget(potential, generator, inner, rng, self.n_inner, self.inner_temperature)
