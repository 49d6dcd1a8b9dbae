"""# A learned density, beside the truth

A field with noise levels is learned from 1,600 points of 32 narrow Gaussians. Its log-density is in nats, with no
constant fitted afterwards, so it can be compared with the true one. Look at the right panel: points on the diagonal
mean that the field knows not only where points lie, but how many.
"""

# %%
# ## Set-up
# The picture goes to the folder given by `--out`.

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import nrf
from nrf.data import gmm
from nrf.fields import GaussianReference, KernelReference, quadrature
from nrf.metrics import mixture_log_density

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("."), help="folder for the picture")
out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

# %%
# ## Train
# A preset holds all settings of a run, and `replace` changes some of them; here training is cut to half of its length.
# The run folder keeps checkpoints, settings and metrics; here it is a temporary one.

preset = nrf.find_preset("gmm-levels")
preset = replace(preset, train=replace(preset.train, iterations=1500))
with tempfile.TemporaryDirectory() as folder:
    nrf.train("gmm-levels", preset, folder, quiet=True)
    model = nrf.TrainedModel.load(folder, averaged=True)

# %%
# ## Compare
# The true log-density is known. The mean of a log-density over new points is its log-likelihood, which is highest for
# the true one on average. A kernel estimate and one Gaussian are fitted to the same training points, for comparison.

means = torch.from_numpy(gmm.means())
points = torch.from_numpy(gmm.reported())  # no setting was chosen by these points
training = torch.from_numpy(gmm.load().train)


def truth(x: torch.Tensor) -> np.ndarray:
    """The true log-density, in nats."""
    return mixture_log_density(x, means, gmm.SIGMA).numpy()


learned = model.log_density(points)
likelihoods = {"truth": truth(points).mean(), "noise levels": learned.mean()}
rng = torch.Generator().manual_seed(0)
for name, reference in {"kernel estimate": KernelReference(), "one Gaussian": GaussianReference()}.items():
    measure = reference.build((2,))
    measure.fit(training, rng)
    likelihoods[name] = measure.log_density(points).mean().item()
for name, value in likelihoods.items():
    print(f"log-likelihood of new points, {name:16} {value:7.3f} nats")

slope = np.polyfit(truth(points), learned, 1)[0]
corner = torch.full((2,), 6.0)
integral = quadrature(lambda x: torch.from_numpy(model.log_density(x)), (-corner, corner)).value
print(f"slope of learned against true log-density {slope:.2f}; integral of the learned density {integral:.3f}")

# %%
# ## Picture

side = torch.linspace(-6, 6, 241)
grid = torch.cartesian_prod(side, side)
maps = {"truth": truth(grid), "learned": model.log_density(grid)}

figure, axes = plt.subplots(1, 3, figsize=(8.4, 3.15), layout="constrained", width_ratios=(1, 1, 1.05))
for axis, (name, values) in zip(axes, maps.items(), strict=False):
    image = axis.imshow(
        np.clip(values, -12, 2).reshape(241, 241).T, origin="lower", extent=(-6, 6, -6, 6), cmap="cividis", vmin=-12
    )
    axis.set(title=name, xlabel="$x_1$", xticks=[-5, 0, 5], yticks=[-5, 0, 5])
axes[0].set_ylabel("$x_2$")
figure.colorbar(image, ax=axes[:2], label="log-density (nats)", location="right", extend="min")

axes[2].plot([-6, 2], [-6, 2], color="#9ca3af", linewidth=1.5)
axes[2].plot(truth(points), learned, ".", color="#0072B2", alpha=0.35, markersize=4, markeredgewidth=0)
axes[2].set(xlim=(-6, 1.2), ylim=(-6, 1.2), title="at 1,600 new points")
axes[2].set(xlabel="true log-density (nats)", ylabel="learned log-density (nats)")
axes[2].text(0.05, 0.95, f"slope {slope:.2f}\nintegral {integral:.2f}", transform=axes[2].transAxes, va="top")
axes[2].set_aspect("equal")
axes[2].spines[["top", "right"]].set_visible(False)
gap = likelihoods["truth"] - likelihoods["noise levels"]
figure.suptitle(f"On average {gap:.2f} nats below the true log-density, with no constant fitted", weight="bold")
figure.savefig(out / "06_density_of_a_mixture.png", dpi=120)
