"""The pictures and numbers of docs/fields.md: log-densities of the 32 modes as they were learned, beside the true one.

    python benchmarks/field_pictures.py --out results/fields --runs runs/fields

Trains the presets `gmm-levels` and `gmm-reference` and one run around a Gaussian, some minutes on one core, and fits
references, which takes a second. Runs that are in `--runs` already are read. Averaged weights are used. Likelihoods and
slopes, of the learned against the true log-density, are over fresh draws of the truth: the points that
`nrf.data.gmm.reported` gives had a part in choosing the settings of `gmm-levels`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from nrf import figures
from nrf.data import gmm
from nrf.fields import GaussianReference, KernelReference, Referenced, ReferencedLevels, log_density
from nrf.reproduce.density.cells import map_points
from nrf.reproduce.density.known import MODES, known
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset
from nrf.runs.train import train
from nrf.runs.trained import TrainedModel
from nrf.seeds import stream

TRUTH = "the truth"
REFERENCE = "reference alone"
SIDE = 120
N_DRAWS, N_SHOWN = 20_000, 300

Density = Callable[[Tensor], Tensor]


def presets() -> dict[str, Preset]:
    """What is trained, by the name in the pictures."""
    levels, reference = find_preset("gmm-levels"), find_preset("gmm-reference")
    gaussian = Referenced(levels.potential, GaussianReference(), bound=8.0)
    watched = replace(levels.train, watch_share=0.1)
    return {
        "noise levels": levels,
        "levels around a mixture": reference,
        "levels around a Gaussian": replace(levels, potential=gaussian, train=watched),
    }


def densities(runs: Path) -> dict[str, Density]:
    """All that is compared."""
    found: dict[str, Density] = {TRUTH: known(MODES).log_density}
    for name, preset in presets().items():
        train(name, preset, runs / name.replace(" ", "-"), resume=True, quiet=True)
        model = TrainedModel.load(runs / name.replace(" ", "-"), averaged=True)
        found[name] = _of_run(model)
        check = model.normaliser()
        assert check.annealed is not None
        assert check.quadrature is not None
        error = f"{check.annealed.log_value:+.3f} ± {check.annealed.standard_error:.3f}"
        print(f"{name}: log of the integral {check.quadrature.log_value:+.4f} by quadrature, {error} by annealing")
        if isinstance(model.potential, ReferencedLevels):
            print(f"{name}: strength {float(model.potential.tilt.strength):.2f}")
            found[f"{name}: {REFERENCE}"] = _reference_of(model.potential)
    rows = torch.from_numpy(gmm.load().train)
    for name, config in (("kernel", KernelReference()), ("Gaussian", GaussianReference())):
        measure = config.build((2,))
        measure.fit(rows, stream(0, "pictures"))
        found[name] = measure.log_density
    return found


def _of_run(model: TrainedModel) -> Density:
    return lambda x: log_density(model.potential, x).double()


def _reference_of(field: ReferencedLevels) -> Density:
    return lambda x: field.measure.log_density(x, field.sigmas[0])


def main() -> None:
    """Train, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/fields"), help="folder of the pictures")
    parser.add_argument("--runs", type=Path, default=Path("runs/fields"), help="folder of the runs")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    truth = known(MODES)
    points = map_points(truth, SIDE)
    draws = truth.draw(N_DRAWS, stream(0, "pictures", "draws"))
    true = truth.log_density(draws)
    centred = true - true.mean()
    maps, pairs = {}, {}
    for name, density in densities(arguments.runs).items():
        learned = density(draws).double()
        slope = float((learned * centred).sum() / centred.square().sum())
        print(f"{name}: log-likelihood {float(learned.mean()):.3f}, slope {slope:.3f}")
        if name == "Gaussian" or name.endswith(REFERENCE):
            continue  # printed only
        maps[name] = density(points).numpy().reshape(SIDE, SIDE)
        if name != TRUTH:
            shown = true[:N_SHOWN].numpy(), learned[:N_SHOWN].numpy()
            pairs[f"{name}, slope {slope:.2f}"] = {"draws of the 32 modes": shown}
    figures.save(figures.log_density_maps(maps, TRUTH), arguments.out / "maps.png")
    figures.save(figures.calibration(pairs), arguments.out / "calibration.png")


if __name__ == "__main__":
    main()
