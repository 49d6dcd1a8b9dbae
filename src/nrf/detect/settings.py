"""How a detector's networks are trained: the settings that few users change, in one place."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nrf.errors import InputError

COUNTS = ("latent_dim", "batch_size")
NUMBERS = ("sigma", "step_size", "first_step_size", "temperature", "learning_rate")


@dataclass(frozen=True, repr=False)
class Training:
    """Settings of a detector's training; those not given are chosen to suit the table.

    Args:
        widths: Hidden units of the potential; by default 256 and 128, and half of that for more than 100,000 rows.
        latent_dim: Size of the generator's code; by default as many as there are columns, 10 at most.
        sigma: Noise of the generator's proposals, in units of the scaled columns.
        n_steps: Sampler steps L of a revision.
        step_size: Step size of the sampler.
        first_step_size: Step size of a revision's first step, if steps are to fall to ``step_size`` during the
            revision. Larger ones bring in proposals from far away: for columns with long tails use 0.05, with
            ``sigma=3``.
        temperature: Temperature of the sampler.
        learning_rate: Learning rate of both networks.
        batch_size: Rows per batch; by default chosen by the number of rows.

    Example:
        >>> Training(sigma=3.0, first_step_size=0.05)
        Training(sigma=3.0, first_step_size=0.05)
    """

    widths: tuple[int, ...] | None = None
    latent_dim: int | None = None
    sigma: float | None = None
    n_steps: int | None = None
    step_size: float | None = None
    first_step_size: float | None = None
    temperature: float | None = None
    learning_rate: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None and not is_count(value):
                raise InputError(f"{name} must be a whole number from 1 on, got {value!r}")
        steps: object = self.n_steps
        if steps is not None and not isinstance(steps, numbers.Integral):
            raise InputError(f"n_steps must be a whole number, got {steps!r}")
        for name in NUMBERS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, numbers.Real):
                raise InputError(f"{name} must be a number, got {value!r}")
        widths = self.widths
        if widths is not None:
            if not (isinstance(widths, Sequence) and widths and all(map(is_count, widths))):
                raise InputError(f"widths must be whole numbers from 1 on, such as (256, 128), got {widths!r}")
            object.__setattr__(self, "widths", tuple(widths))

    def given(self) -> dict[str, Any]:
        """The settings that are not left to the defaults."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __repr__(self) -> str:
        return f"Training({', '.join(f'{name}={value!r}' for name, value in self.given().items())})"


def is_count(value: object) -> bool:
    """Whether a value is a whole number of at least 1."""
    return not isinstance(value, bool) and isinstance(value, numbers.Integral) and int(value) >= 1
