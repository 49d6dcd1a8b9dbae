"""The options of `nrf train PRESET`: a preset's fields, and the settings of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Union

import tyro

from nrf.errors import InputError
from nrf.fields import REFERENCES, NoReference, Referenced
from nrf.fields.references import AnyReference
from nrf.learners import LEARNERS, InclusiveConfig
from nrf.runs.spec import GeneratorChoice, PotentialChoice, Preset
from nrf.samplers import SAMPLERS


def _by_name(registry: Mapping[str, type]) -> Any:
    """A union of a registry's classes, of which one is chosen by its name: `sampler:sghmc`."""
    return Union[tuple(Annotated[kind, tyro.conf.subcommand(name)] for name, kind in registry.items())]  # noqa: UP007


@dataclass(frozen=True)
class PresetOptions(Preset):
    """Everything a run is made from. Each field can be overridden on the command line.

    The kind of network is fixed and its fields can be overridden; the sampler, the learner and the reference around
    which the potential is built can be replaced as a whole.
    """

    if not TYPE_CHECKING:
        potential: Annotated[PotentialChoice, tyro.conf.AvoidSubcommands]
        generator: Annotated[GeneratorChoice, tyro.conf.AvoidSubcommands]
        sampler: _by_name(SAMPLERS)
        learner: _by_name(LEARNERS) = field(default_factory=InclusiveConfig)
        reference: _by_name(REFERENCES) = field(default_factory=NoReference)
    else:
        reference: AnyReference = field(default_factory=NoReference)
    bound: float | None = Referenced.bound
    """With a reference: the network beside it adds or takes at most this many nats; None for no bound."""

    @classmethod
    def of(cls, preset: Preset) -> PresetOptions:
        """Options whose defaults are those of a preset; a reference stands beside the potential, not around it."""
        given, values = preset.potential, _values(preset)
        if not isinstance(given, Referenced):
            return cls(**values)
        return cls(**values | {"potential": given.network, "reference": given.reference, "bound": given.bound})

    def as_preset(self) -> Preset:
        """The preset with these values."""
        values = _values(self)
        if not isinstance(self.reference, NoReference):
            values["potential"] = Referenced(self.potential, self.reference, self.bound)
        elif self.bound != Referenced.bound:
            raise InputError("bound is about the network beside a reference; add one, such as reference:kernel")
        return Preset(**values)


def _values(preset: Preset) -> dict[str, Any]:
    return {f.name: getattr(preset, f.name) for f in fields(Preset)}


@dataclass(frozen=True)
class TrainRequest:
    """All options of `nrf train PRESET`."""

    out: Path
    """Folder of the run."""
    preset: Annotated[PresetOptions, tyro.conf.arg(name="")]
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Continue the run in the folder; its own settings are the defaults, so overrides need not be repeated."""
    device: str = "cpu"
    """Where to compute: cpu, cuda, mps, …"""
    quiet: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """No progress bar."""
