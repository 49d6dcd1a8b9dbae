"""My learner: say in one sentence what it optimises. Copy this file to src/nrf/learners/, then change what is marked.

Reference:
    Authors, "Title".
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from nrf.learners.base import Learner, LearnerConfig, Metrics, SamplingLearner, checked
from nrf.learners.revision import Revision
from nrf.losses import likelihood_loss, regression_loss
from nrf.models import LatentGenerator, frozen, together
from nrf.samplers import Sampler
from nrf.seeds import Rng


@dataclass(frozen=True)
class MyLearnerConfig(LearnerConfig):
    """Change: what an iteration does, in one sentence; it is the help on the command line."""

    # Change: settings beyond those of `LearnerConfig` (the optimisers). Each has a default and a line below it.
    generator_weight: float = 1.0
    """Weight of the generator's loss."""

    def build(self, potential: nn.Module, generator: LatentGenerator, sampler: Sampler, revision: Revision) -> Learner:
        return MyLearner(potential, generator, sampler, revision, self)


class MyLearner(SamplingLearner):
    """One iteration: change this.

    Args:
        potential: ``u``.
        generator: ``q(x, h)``.
        sampler: Any sampler.
        revision: Target and length of the revision.
        config: Losses and optimisers.
    """

    def __init__(
        self,
        potential: nn.Module,
        generator: LatentGenerator,
        sampler: Sampler,
        revision: Revision,
        config: MyLearnerConfig,
    ) -> None:
        # Further trained modules, and memory that must survive a restart, go to `more`: {"name": (module, rate)}.
        super().__init__(potential, generator, sampler, revision, config)
        self.config = config

    def update(self, batch: Tensor, rng: Rng) -> Metrics:
        # Samples of the model: all randomness comes from rng.
        with frozen(self.generator):
            proposed, h = self.generator.propose(len(batch), rng)
        x, h = self.revise(proposed, h, rng)
        # Change: the potential's loss. `descend` steps the optimisers of the modules named.
        u_data, u_samples = together(self.potential, batch, x)
        potential_loss = likelihood_loss(u_data, u_samples, 0.0)
        self.descend(potential_loss, "potential")
        # Change: the generator's loss.
        generator_loss = self.config.generator_weight * regression_loss(x, self.generator(h))
        self.descend(generator_loss, "generator")
        metrics = {
            "u_data": u_data.detach().mean(),
            "u_revised": u_samples.detach().mean(),
            "potential_loss": potential_loss.detach(),
            "generator_loss": generator_loss.detach(),
            **self.revise.diagnostics,
        }
        # In the order of cause and effect: an error names the first that is not finite.
        return checked(metrics, batch=batch, proposed_samples=proposed, revised_samples=x, revised_codes=h)
