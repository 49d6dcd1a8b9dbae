"""# Generator and revision

An inclusive random field is a pair: a generator proposes samples, and a sampler revises them along the learned
potential. Both are trained together from 1,600 points of 32 narrow Gaussians. Look at what the revision does: it moves
proposals that lie between the modes to one of them, which a continuous generator alone can hardly do.
"""

# %%
# ## Set-up
# The picture goes to the folder given by `--out`.

import argparse
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import nrf
from nrf.data import gmm
from nrf.metrics import mode_coverage

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("."), help="folder for the picture")
out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

# %%
# ## Train
# The preset `gmm-short`, cut to 3,000 of its 20,000 iterations, so the generator is still rough.

preset = nrf.find_preset("gmm-short")
preset = replace(preset, train=replace(preset.train, iterations=3000))
with tempfile.TemporaryDirectory() as folder:
    nrf.train("gmm-short", preset, folder, quiet=True)
    pair = nrf.TrainedModel.load(folder, averaged=True)

# %%
# ## Propose and revise
# The same proposals after more and more steps of the sampler that was used in training. A sample is realistic if it
# lies within 3σ of a mode. Of a hundred samples of the mixture itself, `99 %` are realistic, and they reach `30.7` of
# the 32 modes on average: both have closed forms.

proposals, _ = pair.sample(5000, seed=1)
means = torch.from_numpy(gmm.means()).float()
steps = [0, 1, 2, 4, 7, 10, 15, 20, 30, 50]
revised = {n: pair.revise(proposals, n_steps=n, seed=2) if n else proposals for n in steps}
coverage = {n: mode_coverage(torch.from_numpy(x), means, gmm.SIGMA) for n, x in revised.items()}
for n in (0, 10, 30):
    print(f"{n:3} steps: {coverage[n].covered:4.1f} modes in a hundred samples, {coverage[n].realistic:.0%} realistic")

# %%
# ## Picture
# The lower left panel shows a part of the plane. The shade is the potential u, known up to a constant; lines lead from
# proposals (orange) to where 30 steps have moved them (blue).

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6b7280"
figure, ((first, second), (third, fourth)) = plt.subplots(2, 2, figsize=(8.4, 7.4), layout="constrained")
for axis, n, colour, name in ((first, 0, ORANGE, "proposals"), (second, 30, BLUE, "the same, 30 steps later")):
    axis.plot(*revised[n][:1500].T, ".", color=colour, markersize=3.5, markeredgewidth=0)
    axis.set(xlim=(-6, 6), ylim=(-6, 6), xlabel="$x_1$", ylabel="$x_2$")
    axis.set_title(f"{name}: {coverage[n].realistic:.0%} realistic")
    axis.set_aspect("equal")

low, high = torch.linspace(-5.5, 0, 200), torch.linspace(0, 5.5, 200)
potential = pair.score_samples(torch.cartesian_prod(low, high)).reshape(200, 200).T
third.imshow(
    potential, origin="lower", extent=(-5.5, 0, 0, 5.5), cmap="Greys", vmax=2 * potential.max() - potential.min()
)
third.plot(*torch.from_numpy(gmm.means()).T, "k+", markersize=9, label="true mode")
lines = torch.stack([torch.from_numpy(proposals), torch.from_numpy(revised[30])])[:, :250]
third.plot(*lines.permute(2, 0, 1), color=GREY, linewidth=0.7)
third.plot(*lines[0].T, ".", color=ORANGE, markersize=5, markeredgewidth=0)
third.plot(*lines[1].T, ".", color=BLUE, markersize=5, markeredgewidth=0)
third.set(xlim=(-5.5, 0), ylim=(0, 5.5), xlabel="$x_1$", ylabel="$x_2$", title="paths in a quarter of the plane")
third.legend(loc="lower left")

best = 100 * (1 - math.exp(-(3**2) / 2))  # of a Gaussian in the plane, this share lies within 3σ
fourth.plot(steps, [100 * coverage[n].realistic for n in steps], "o-", color=BLUE)
fourth.axhline(best, color=GREY, linestyle="--", linewidth=1.2)
fourth.text(50, best - 1.5, "the mixture itself", ha="right", va="top", color=GREY)
fourth.axvline(preset.revision.n_steps, color=GREY, linewidth=1, linestyle=":")
fourth.text(preset.revision.n_steps + 0.7, 3, "steps in training", color=GREY)
fourth.set(xlabel="sampler steps", ylabel="realistic samples (%)", ylim=(0, 105), title="more steps, more realistic")
fourth.spines[["top", "right"]].set_visible(False)
figure.suptitle("Revision moves rough proposals onto modes that the potential has learned", weight="bold")
figure.savefig(out / "08_generator_and_revision.png", dpi=120)
