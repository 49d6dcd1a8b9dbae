"""# Samplers, compared

Five samplers start at the same point of a narrow, tilted Gaussian. Look at two things: how far a chain gets with the
same number of gradients (above), and what a longer step does to the distribution of the chains (below). Momentum goes
farther. Of the samplers without an accept–reject step, SGLD and SGHMC pay for longer steps with a wrong distribution;
BAOAB does not, on a Gaussian.
"""

# %%
# ## Set-up
# The picture goes to the folder given by `--out`.

import argparse
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from nrf.samplers import BAOAB, HMC, MALA, SGHMC, SGLD, Chain, run
from nrf.targets import PotentialTarget

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("."), help="folder for the picture")
out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

# %%
# ## A target
# A potential is any function of rows, and `PotentialTarget` gives samplers its value and gradient. This one has
# standard deviations `3` along one diagonal and `0.3` along the other.

axes = torch.tensor([[1.0, 1.0], [-1.0, 1.0]]) / 2**0.5  # one direction in each row
deviations = torch.tensor([3.0, 0.3])


def potential(x: torch.Tensor) -> torch.Tensor:
    """The log-density of a tilted Gaussian, up to a constant."""
    return -((x @ axes.T / deviations) ** 2).sum(1) / 2


target = PotentialTarget(potential)

# %%
# ## How far with 240 gradients?
# All have the same step size and start at the same far end. `run` calls `trace` after each step. HMC takes eight
# gradients per step, so it gets an eighth of the steps.

STEP = 0.02
samplers = {
    "SGLD": SGLD(step_size=STEP),
    "MALA": MALA(step_size=STEP),
    "SGHMC": SGHMC(step_size=STEP, friction=0.1),
    "BAOAB": BAOAB(step_size=STEP, friction=0.1),
    "HMC": HMC(step_size=STEP, n_leapfrog=8),
}
gradients = {name: 8 if name == "HMC" else 1 for name in samplers}
start = (torch.tensor([[-2.0, 0.0]]) * deviations) @ axes


def along(x: torch.Tensor) -> torch.Tensor:
    """Position along the wide direction, in standard deviations."""
    return x @ axes[0] / deviations[0]


paths, progress = {}, {}
for name, sampler in samplers.items():
    places = [start]
    centre = [-2.0]

    def note(l: int, chain: Chain, places: list = places, centre: list = centre) -> None:
        places.append(chain.position[0][:1])
        centre.append(float(along(chain.position[0]).mean()))

    rng = torch.Generator().manual_seed(3)
    run(sampler, (start.repeat(1000, 1),), target, 240 // gradients[name], rng, note)
    paths[name], progress[name] = torch.cat(places), np.array(centre)
    print(f"{name:6} mean of 1,000 chains, in SD: {centre[0]:.2f} → {centre[-1]:.2f} after 240 gradients")

# %%
# ## What a longer step does to the distribution
# Chains start at exact draws and take 80 steps of each size. The variance of the narrow direction, divided by the true
# one, shows the bias of the step size; chains of SGLD diverge from a step size of `2 · 0.3² = 0.18` on.

sizes = np.array([0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.12])
biases: dict[str, list[float]] = {name: [] for name in samplers}
for name, sampler in samplers.items():
    for size in sizes:
        rng = torch.Generator().manual_seed(0)
        exact = (torch.randn(20_000, 2, generator=rng) * deviations) @ axes
        chain = run(replace(sampler, step_size=float(size)), (exact,), target, 80, rng)
        narrow = chain.position[0] @ axes[1]
        biases[name].append(float(narrow.var() / deviations[1] ** 2))
for name, values in biases.items():
    print(f"{name:6} variance over the true one at step size {sizes[-1]}: {values[-1]:.2f}")

# %%
# ## Picture

COLOURS = {"SGLD": "#D55E00", "MALA": "#E69F00", "SGHMC": "#0072B2", "BAOAB": "#009E73", "HMC": "#CC79A7"}
MARKS = {"SGLD": "o", "MALA": "s", "SGHMC": "^", "BAOAB": "D", "HMC": "v"}
figure = plt.figure(figsize=(8.4, 5.8), layout="constrained")
above, below = figure.subfigures(2, 1, height_ratios=(1, 1.35))
side = torch.linspace(-7, 7, 141)
height = potential(torch.cartesian_prod(side, side)).reshape(141, 141).T
for axis, (name, path) in zip(above.subplots(1, 5), paths.items(), strict=True):
    axis.contour(side, side, height, levels=[-4.5, -2, -0.5], colors="#9ca3af", linewidths=0.8, linestyles="-")
    axis.plot(*path.T, color=COLOURS[name], linewidth=0.9, marker=".", markersize=2)
    axis.plot(*start[0], "k*", markersize=9)
    axis.set(xticks=[], yticks=[], xlim=(-7, 7), ylim=(-7, 7))
    axis.set_title(name, color=COLOURS[name], weight="bold")
    axis.set_aspect("equal")
above.suptitle("Momentum goes farther with the same gradients; long steps bias SGLD and SGHMC", weight="bold")

left, right = below.subplots(1, 2)
for name, values in progress.items():
    left.plot(gradients[name] * np.arange(len(values)), values, color=COLOURS[name], label=name)
left.axhline(0, color="#6b7280", linewidth=1, linestyle="--")
left.set(xlabel="gradients", ylabel="mean of the chains (SD)", title="from a start 2 SD away; 0 is right")
for name, values in biases.items():
    right.plot(sizes, values, MARKS[name] + "-", color=COLOURS[name], label=name, markersize=5)
right.axhline(1, color="#6b7280", linewidth=1, linestyle="--")
right.set(xscale="log", xlabel="step size δ", ylabel="variance / true variance", title="narrow direction; 1 is right")
right.set_xticks(sizes, [f"{s:g}" for s in sizes], rotation=45)
right.minorticks_off()
right.legend(frameon=False, loc="upper left")
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
figure.savefig(out / "07_samplers_compared.png", dpi=120)
