"""Values set after training by held-out rows: the strength λ of a network beside its reference, and the normaliser Z.

A field around a reference is learned with λ = 1. After the last iteration, before its checkpoint is written, the rows
that the run watched (``train.watch_share``) choose λ, and Z is estimated from draws of the reference. Without watched
rows λ stays 1. The averaged weights are a field of their own and get their own λ and Z. A run that goes on beyond its
former end begins with λ = 1 again, so it ends with the same bits as one that was never interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from nrf.fields import NoReference, Referenced, choose_strength, normalise
from nrf.fields.referenced import AnyReferenced
from nrf.networks import replica_state
from nrf.runs.spec import Preset
from nrf.seeds import stream
from nrf.training import Trainer, set_aside


def choose_by(preset: Preset, data: Tensor) -> Callable[[Trainer], Mapping[str, float]] | None:
    """The function that a trainer calls at its end; None if there is no reference that can be sampled.

    Args:
        preset: What is trained.
        data: Its training rows; those that the trainer watches are among them.

    Returns:
        A function that sets λ and Z, and returns ``strength``, with held-out rows also ``strength_gain`` (nats per
        held-out row over the reference alone) and ``strength_gain_error``, and the same for averaged weights with the
        prefix ``averaged_``. For replicas these are means.
    """
    if not isinstance(preset.potential, Referenced) or isinstance(preset.potential.reference, NoReference):
        return None
    watched, _ = set_aside(data, preset.train.watch_share, preset.seeds[0])

    def at_end(trainer: Trainer) -> dict[str, float]:
        found = _chosen(preset, trainer.learner.modules["potential"], watched, data)
        averaged = trainer.averaged().get("potential")
        if averaged is not None:
            more = _chosen(preset, averaged, watched, data)
            found |= {f"averaged_{name}": value for name, value in more.items()}
        return found

    return at_end


def start_over(trainer: Trainer) -> None:
    """Before further iterations: λ = 1 and Z unknown, as at the beginning; a run at its end is left as it is."""
    modules = [trainer.learner.modules.get("potential"), *(average.module for average in trainer.averages.values())]
    for module in modules:
        if isinstance(module, AnyReferenced) and trainer.step < trainer.total:
            module.tilt.reset()


def _chosen(preset: Preset, module: nn.Module, watched: Tensor | None, data: Tensor) -> dict[str, float]:
    """Set λ and Z of one module, which may hold replicas, and say what was found: means over those."""
    field = cast(AnyReferenced, module)
    found: list[dict[str, float]] = []
    for i, seed in enumerate(preset.seeds):
        alone = field if preset.replicas == 1 else _replica(preset, field, i, data)
        rng = stream(seed, "strength", device=data.device)
        if watched is None:
            normalise(alone, rng)
            found.append({"strength": float(alone.tilt.strength)})
        else:
            choice = choose_strength(alone, watched, rng)
            gain = {"strength_gain": choice.gain, "strength_gain_error": choice.standard_error}
            found.append({"strength": choice.strength, **gain})
        if alone is not field:
            for name, value in alone.tilt.named_buffers():
                field.tilt.get_buffer(name)[i] = value
    return {name: sum(one[name] for one in found) / len(found) for name in found[0]}


def _replica(preset: Preset, stacked: nn.Module, i: int, data: Tensor) -> AnyReferenced:
    """One model of several, as a model of its own."""
    alone, _ = preset.networks(tuple(data.shape[1:]), preset.seeds[i])
    alone = alone.to(data.device)
    with torch.no_grad():
        alone.load_state_dict(replica_state(stacked.state_dict(), i))
    return cast(AnyReferenced, alone)
