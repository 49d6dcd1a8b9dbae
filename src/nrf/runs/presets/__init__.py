"""Named presets: what `nrf train NAME` starts from. A new one is a function in a module here and a line in ``PRESETS``.

``paper`` is what the text says, ``released`` what the authors' scripts did; where the text is silent (σ, the step size
of h), the values here are ours and docs/presets.md says so. The released scripts revise x only, with little or no
noise, and multiply the momentum by their "β", which is a friction of 1 − β here.
"""

from __future__ import annotations

import difflib

from nrf.errors import InputError
from nrf.runs.presets.cifar10 import cifar10, cifar10_one_class
from nrf.runs.presets.digits import digits
from nrf.runs.presets.gmm import gmm
from nrf.runs.presets.kddcup import kddcup
from nrf.runs.presets.levels import levels
from nrf.runs.presets.mnist import mnist
from nrf.runs.spec import Preset

PRESETS: dict[str, Preset] = {
    **gmm(),
    **levels(),
    **digits(),
    **kddcup(),
    **mnist(),
    **cifar10_one_class(),
    **cifar10(),
}
"""Every preset by its name."""

__all__ = ["PRESETS", "find_preset"]


def find_preset(name: str) -> Preset:
    """The preset of that name, or an error with the nearest names."""
    if name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name, PRESETS, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else "`nrf train` lists them"
    raise InputError(f"unknown preset {name!r}; {hint}")
