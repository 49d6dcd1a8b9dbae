"""A trained pair read back from its run folder: score, sample, revise, interpolate. Reads only a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nrf.config import from_json
from nrf.deprecation import deprecated, former_names
from nrf.errors import CheckpointError, InputError
from nrf.fields import Normaliser, ReferencedPotential, check_normaliser, draw_widest, log_density
from nrf.fields.referenced import AnyReferenced
from nrf.learners import LevelsConfig, Revision
from nrf.learners.base import require_finite
from nrf.models import LatentGenerator, frozen
from nrf.networks import NoiseLevelPotential, Shape, replica_state, require_levels
from nrf.runs.spec import Preset
from nrf.samplers import CoopNet, Sampler
from nrf.seeds import randn, require_seed, stream
from nrf.training import RunFolder
from nrf.training import checkpoint as ckpt

Array = NDArray[np.float32]

CHUNK = 100
"""Samples are drawn in whole chunks, so the first k do not depend on how many are asked for."""
SCORE_CHUNK = 4096
BATCHES = 10
"""Number of batches that are generated at a time, where each sample needs a batch of its own."""


OnRevised = Callable[[Mapping[str, Tensor]], object]
"""Called with a sampler's diagnostics of the chains of a revision, such as ``acceptance``."""


@dataclass(frozen=True)
class TrainedModel:
    """Potential and generator of a run, with the preset they were trained by.

    Attributes:
        preset: All settings of the run.
        potential: ``u``; high = normal.
        generator: ``q(x, h)``.
        event_shape: Shape of one row.
        step: The training iteration of the weights.
    """

    preset: Preset
    potential: nn.Module
    generator: LatentGenerator
    event_shape: Shape
    step: int

    @classmethod
    def load(
        cls, folder: Path | str, *, averaged: bool = False, step: int | None = None, replica: int = 0
    ) -> TrainedModel:
        """Read a checkpoint of a run folder.

        Args:
            folder: The run folder.
            averaged: Take the averaged weights, if the run kept them.
            step: Which checkpoint; the newest if not given.
            replica: Which of the models that were trained side by side, from 0.

        Returns:
            The model, on the CPU and with frozen parameters.

        Raises:
            CheckpointError: There is no checkpoint, or it cannot be read.
            InputError: The run kept no averaged weights, or has fewer replicas.
        """
        run = RunFolder(folder)
        described = run.describe()
        if step is None:
            newest = run.newest()
        else:
            path = run.checkpoint_path(step)
            newest = path, ckpt.require_run(ckpt.read(path), path)
        if newest is None:
            command = f"nrf train {described.get('preset')} --out {folder} --resume"
            raise CheckpointError(f"{folder} holds no checkpoint yet; let `{command}` run on")
        path, stored = newest
        try:
            preset = from_json(Preset, stored.meta["config"])
            event_shape = tuple(int(n) for n in stored.meta["event_shape"])
        except (LookupError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path}: its configuration cannot be read by this version: {error}") from error
        potential, generator = preset.networks(event_shape, preset.seed)
        if averaged and not stored.meta["averaged"]:
            raise InputError(
                f"{folder} kept no averaged weights; train with --train.ema-decay, or leave out --averaged"
            )
        if not 0 <= replica < preset.replicas:
            raise InputError(
                f"{folder} holds {preset.replicas} model(s), so --replica goes from 0 to "
                f"{preset.replicas - 1}, got {replica}"
            )
        for name, module in (("potential", potential), ("generator", generator)):
            state = stored.group(f"{'averaged' if averaged else 'module'}/{name}")
            if averaged:  # stored as a wrapper with the module in it and a count beside
                state = {k.removeprefix("module."): v for k, v in state.items() if k.startswith("module.")}
            ckpt.load_state(module, state if preset.replicas == 1 else replica_state(state, replica), path)
            module.eval().requires_grad_(False)
        return cls(preset, potential, generator, event_shape, int(stored.meta["step"]))

    def score_samples(self, x: Array | Tensor) -> Array:
        """The potential of each row: high = normal.

        Args:
            x: Rows, ``(n, *event_shape)``, in the units the model was trained in.

        Returns:
            One number per row.
        """
        with torch.no_grad(), frozen(self.potential):
            return _in_chunks(lambda rows: self.potential(rows), self._rows(x), SCORE_CHUNK, "potential")

    def log_density(self, x: Array | Tensor) -> Array:
        """``log p(x)`` of each row in nats, where the learner makes the potential a normalised density.

        With noise levels it is the density of the data blurred by the noise of the smallest one. Around a reference it
        is normalised after the last iteration of a run, whatever the learner.

        Args:
            x: Rows, as for :meth:`score_samples`.

        Returns:
            One number per row.

        Raises:
            InputError: The potential is known up to a constant only.
        """
        field = self._require_density()
        return _in_chunks(lambda rows: log_density(field, rows), self._rows(x), SCORE_CHUNK, "log-density")

    def normaliser(self, *, seed: int = 0, n_chains: int = 500, n_between: int = 10, n_moves: int = 2) -> Normaliser:
        """``∫ p(x) dx`` by methods that do not use how the field was learned: 1 if :meth:`log_density` is right.

        Args:
            seed: Seed of annealed importance sampling, or of the draws of a reference.
            n_chains: Independent chains of annealed importance sampling.
            n_between: Its intermediate densities between two noise levels.
            n_moves: Its moves at each density.

        Returns:
            With noise levels the answer of annealed importance sampling, without them that of importance sampling from
            the reference, each with a standard error; and, for up to three columns, that of a quadrature.

        Raises:
            InputError: The potential is known up to a constant only.
        """
        field = self._require_density()
        rng = stream(require_seed(seed), "normaliser")
        like = torch.zeros(1, *self.event_shape)
        return check_normaliser(field, like, rng, n_chains=n_chains, n_between=n_between, n_moves=n_moves)

    def score(self, x: Array | Tensor) -> Array:
        """The former name of :meth:`score_samples`; deprecated."""
        deprecated("TrainedModel.score", "TrainedModel.score_samples")
        return self.score_samples(x)

    def sample(
        self,
        n: int,
        *,
        seed: int = 0,
        revise: bool = False,
        sampler: Sampler | None = None,
        n_steps: int | None = None,
        temperature: float | None = None,
        step_size: float | None = None,
        on_revised: OnRevised | None = None,
    ) -> tuple[Array, Array]:
        """``n`` independent samples and their codes, from the generator alone or revised.

        A field with noise levels and no trained generator is sampled by revision alone: from the Gaussian of the widest
        level down to the smallest. Its samples have codes of dimension 0.

        Args:
            n: How many.
            seed: Seed of codes and noise.
            revise: Revise the generator's proposals. The arguments below are about the revision.
            sampler: A sampler in place of the one of training, with all its settings.
            n_steps: Steps, in place of those of training; at each noise level, where there are any.
            temperature: Temperature, in place of the sampler's own.
            step_size: Step size of x, in place of the sampler's own.
            on_revised: Called with the sampler's diagnostics of each chunk of samples that was revised.

        Returns:
            Samples ``(n, *event_shape)`` and codes ``(n, latent_dim)``.
        """
        if n < 1:
            raise InputError(f"the number of samples must be at least 1, got {n}")
        from_widest = self._anneals_from_widest
        if not (revise and from_widest):
            self._require_generator()
        rng = stream(require_seed(seed), "sample")
        revision, chosen = self._revision(sampler, n_steps, temperature, step_size)
        if from_widest:
            revision, chosen = _along_x(revision, chosen, start_level=-1)
        if revise:
            revision.check(chosen, self.generator)

        def revised(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
            if not revise:
                return x, h
            found = revision.revised(self.potential, self.generator, chosen, x, h, rng)
            if on_revised is not None:
                on_revised(found.diagnostics)
            return found.x, found.h

        # Allocated at once, so that too many samples for the memory show before the work, not after it.
        latent_dim = 0 if from_widest else self.generator.latent_dim
        xs, hs = torch.empty(n, *self.event_shape), torch.empty(n, latent_dim)
        with frozen(self.potential, self.generator):
            for start in range(0, n, CHUNK):
                if from_widest:
                    field = require_levels(self.potential)
                    x, h = revised(draw_widest(field, CHUNK, xs, rng), torch.empty(CHUNK, 0))
                elif revise and revision.target != "x" and self._mixes_rows:  # chains through g: one each
                    alone = [revised(*self.generator.propose(self._batch_size, rng)) for _ in range(CHUNK)]
                    x, h = (torch.cat([drawn[:1] for drawn in each]) for each in zip(*alone, strict=True))
                else:
                    x, h = revised(*self._propose(CHUNK, rng))
                xs[start : start + CHUNK], hs[start : start + CHUNK] = x[: n - start], h[: n - start]
        require_finite(samples=xs, codes=hs)
        return xs.numpy(), hs.numpy()

    def revise(
        self,
        x: Array | Tensor,
        *,
        seed: int = 0,
        sampler: Sampler | None = None,
        n_steps: int | None = None,
        temperature: float | None = None,
        step_size: float | None = None,
        start_level: int = 0,
        on_revised: OnRevised | None = None,
    ) -> Array:
        """Pull given rows towards typical ones along the potential; they have no codes, so x alone is revised.

        Args:
            x: Rows.
            seed: Seed of the sampler's noise.
            sampler: As for :meth:`sample`, like the arguments after it.
            n_steps: Steps.
            temperature: Temperature.
            step_size: Step size.
            start_level: For a field with noise levels: the level to begin at, −1 for the widest. The wider it is, the
                less of a row is kept.
            on_revised: Called with the sampler's diagnostics.

        Returns:
            The rows, revised.
        """
        revision, chosen = self._revision(sampler, n_steps, temperature, step_size)
        revision, chosen = _along_x(revision, chosen, start_level)
        rng = stream(require_seed(seed), "revise")
        none = torch.zeros(0)

        def pull(rows: Tensor) -> Tensor:
            found = revision.revised(self.potential, self.generator, chosen, rows, none, rng)
            if on_revised is not None:
                on_revised(found.diagnostics)
            return found.x

        with frozen(self.potential, self.generator):
            return _in_chunks(pull, self._rows(x), SCORE_CHUNK, "revised rows")

    def interpolate(self, pairs: int, steps: int, *, seed: int = 0) -> Array:
        """Generated events along straight lines between ``pairs`` of codes: ``(pairs, steps, *event)``."""
        if pairs < 1 or steps < 2:
            raise InputError(f"interpolation needs at least 1 pair and 2 steps, got {pairs} and {steps}")
        self._require_generator()
        rng = stream(require_seed(seed), "interpolate")
        start, end = (self.generator.sample_latent(pairs, rng) for _ in range(2))
        weight = torch.linspace(0, 1, steps)[None, :, None]
        codes = torch.lerp(start[:, None], end[:, None], weight.expand(pairs, steps, 1))
        company = self.generator.sample_latent(self._batch_size - 1, rng) if self._mixes_rows else None
        with torch.no_grad(), frozen(self.generator):
            events = self._generate(codes.flatten(0, 1), company)
        return np.asarray(events.numpy()).reshape(pairs, steps, *self.event_shape)

    def _rows(self, x: Array | Tensor) -> Tensor:
        """The given rows as a tensor, if they have the shape of the model's."""
        given = x.detach().cpu() if isinstance(x, Tensor) else x
        rows = torch.from_numpy(np.ascontiguousarray(given, dtype=np.float32))
        if rows.shape[1:] != self.event_shape:
            wanted = ", ".join(["n", *map(str, self.event_shape)])
            hint = "; put a single row in a list: [x]" if np.shape(given) == self.event_shape else ""
            raise InputError(f"rows must have the shape ({wanted}), got {tuple(np.shape(given))}{hint}")
        return rows

    @property
    def _mixes_rows(self) -> bool:
        """Whether batch norm takes the batch's own statistics, so that an event depends on the codes beside its own."""
        return any(isinstance(m, _BatchNorm) and m.running_mean is None for m in self.generator.modules())

    @property
    def _batch_size(self) -> int:
        return self.preset.train.batch_size

    @torch.no_grad()
    def _propose(self, n: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """Independent proposals: where the rows of a batch are mixed, each has a batch of its own, as in training."""
        if not self._mixes_rows:
            return self.generator.propose(n, rng)
        codes = self.generator.sample_latent(n, rng)
        company = self.generator.sample_latent(n * (self._batch_size - 1), rng)
        x = self._generate(codes, company.reshape(n, -1, self.generator.latent_dim))
        if self.generator.sigma > 0:
            x = x + self.generator.sigma * randn(x.shape, rng)
        return x, codes

    def _generate(self, codes: Tensor, company: Tensor | None) -> Tensor:
        """Events of codes, none depending on another; ``company`` are the codes beside each one, or beside all."""
        out: Tensor
        if company is None:
            out = self.generator(codes)
        else:
            batches = torch.cat([codes[:, None], company.expand(len(codes), -1, -1)], 1)
            out = torch.vmap(self.generator, chunk_size=BATCHES)(batches)[:, 0]
        return out

    @property
    def has_generator(self) -> bool:
        """Whether a generator was trained."""
        return self.preset.learner.generator_lr > 0

    @property
    def _anneals_from_widest(self) -> bool:
        """Whether samples are drawn down the noise levels alone, from a Gaussian."""
        return isinstance(self.preset.learner, LevelsConfig) and not self.has_generator

    def _require_generator(self) -> None:
        if not self.has_generator:
            name = type(self.preset.learner).__name__.removesuffix("Config")
            other = (
                "add --revise (revise=True) to sample down its noise levels"
                if self._anneals_from_widest
                else "use `nrf revise` on rows of your own"
            )
            raise InputError(f"{name} trained no generator to draw from; {other}")

    def _require_density(self) -> NoiseLevelPotential | ReferencedPotential:
        """The potential, if the learner or draws of a reference have normalised it."""
        learner = self.preset.learner
        if isinstance(self.potential, AnyReferenced) and self.potential.is_normalised:
            return self.potential
        if not isinstance(learner, LevelsConfig):
            if isinstance(self.potential, AnyReferenced) and self.potential.measure.normalised:
                raise InputError("a field around a reference is normalised at the end of its run, which is not reached")
            name = type(learner).__name__.removesuffix("Config")
            raise InputError(
                f"{name} learns a potential that is known up to a constant only; a log-density in nats has the learner "
                "`levels`, as in the presets gmm-levels, digits-levels and mnist-levels, and any field around a "
                "reference (reference:kernel)"
            )
        return require_levels(self.potential)

    def _revision(
        self, sampler: Sampler | None, n_steps: int | None, temperature: float | None, step_size: float | None
    ) -> tuple[Revision, Sampler]:
        """The revision and sampler of training, with the given values in place of their own."""
        revision = self.preset.revision
        by_default = revision.n_steps if revision.sample_steps is None else revision.sample_steps
        revision = replace(revision, n_steps=by_default if n_steps is None else n_steps)
        chosen: Sampler = self.preset.sampler if sampler is None else sampler
        if temperature is not None:
            chosen = replace(chosen, temperature=temperature)
        if step_size is not None:
            chosen = replace(chosen, step_size=step_size)
        return revision, chosen


def _along_x(revision: Revision, sampler: Sampler, start_level: int) -> tuple[Revision, Sampler]:
    """The revision and the sampler for rows without codes."""
    alone = sampler.along_x() if isinstance(sampler, CoopNet) else sampler
    return replace(revision, target="x", start_level=start_level), alone


def _in_chunks(function: Callable[[Tensor], Tensor], rows: Tensor, size: int, what: str) -> Array:
    out = torch.cat([function(part) for part in torch.split(rows, size)])
    require_finite(**{what: out})
    return np.asarray(out.numpy())


__getattr__ = former_names("nrf.runs.trained", {"Trained": "nrf.runs.trained.TrainedModel"})
