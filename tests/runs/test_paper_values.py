"""Numbers that are not ours, written down a second time: settings of the text and of the scripts, and quoted results.

Tables and appendix are those of Song & Ou. What the text does not give (σ, the step size of h) is our own choice
and pinned as such. A change of any number here is a change of what the project claims somebody else has done.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from nrf.fields import Referenced
from nrf.learners import LevelsConfig
from nrf.reproduce.generation.cells import GENERATION
from nrf.reproduce.generation.mnist_cells import LINES
from nrf.reproduce.gmm import experiment as gmm
from nrf.reproduce.kddcup import experiment as kddcup
from nrf.reproduce.one_class.paper import METHODS, NAMES, quoted, quoted_mean
from nrf.runs.presets import PRESETS
from nrf.samplers import SGHMC, SGLD

TEXT, SCRIPTS = "joint", "x"  # what is revised: (x, h) in Alg. 2, x alone in every released script


class Settings(NamedTuple):
    """What the text gives of an experiment, in its letters; friction is our β of (1 − β)v."""

    sampler: type
    delta: float
    friction: float | None
    temperature: float
    steps: int
    revised: str
    alpha_p: float
    lr_u: float
    lr_g: float
    betas: tuple[float, float]
    optimizer: str
    batch: int
    length: tuple[int | None, int | None]
    """Iterations, epochs."""
    delta_h: float | None
    """Ours: the text has none."""
    sigma: float
    """Ours where positive, but for 0.1 of `mnist-*-released`, the noise that script adds to a proposal."""


def _settings(preset):
    sampler, learner, train = preset.sampler, preset.learner, preset.train
    return Settings(
        type(sampler),
        sampler.step_size,
        getattr(sampler, "friction", None),
        sampler.temperature,
        preset.revision.n_steps,
        preset.revision.target,
        learner.control_weight,
        learner.potential_lr,
        learner.generator_lr,
        learner.betas,
        learner.optimizer,
        train.batch_size,
        (train.iterations, train.epochs),
        sampler.latent_step_size,
        preset.generator.sigma,
    )


A, R = "adam", "rmsprop"
SETTINGS = {
    # Appendix, table of the GMM experiment; scripts: Adam(0, 0.999), noise 0.01 = √(2δτ), 500,000 iterations.
    "gmm-paper": (SGLD, 0.01, None, 1.0, 10, TEXT, 0.0, 1e-3, 1e-3, (0.5, 0.9), A, 100, (160_000, None), 1e-5, 0.1),
    "gmm-released": (
        *(SGLD, 0.01, None, 0.005, 10, SCRIPTS, 0.0, 1e-3, 1e-3, (0.0, 0.999), A, 100),
        *((500_000, None), None, 0.0),
    ),
    # Appendix, table of KDDCUP. Scripts keep "β" of the momentum: 0.3 kept is a friction of 0.7.
    "kddcup-sgld-paper": (
        *(SGLD, 0.003, None, 1.0, 10, TEXT, 0.1, 1e-4, 3e-4, (0.5, 0.999), A, 1024),
        *((None, 30), 1e-4, 0.1),
    ),
    "kddcup-sghmc-paper": (
        *(SGHMC, 0.03, 0.3, 1.0, 10, TEXT, 0.1, 1e-4, 3e-4, (0.5, 0.999), A, 1024),
        *((None, 30), 1e-4, 0.1),
    ),
    "kddcup-sgld-released": (
        *(SGLD, 0.003, None, 0.0, 10, SCRIPTS, 0.1, 1e-4, 3e-4, (0.5, 0.999), A, 1024),
        *((None, 30), None, 0.0),
    ),
    "kddcup-sghmc-released": (
        *(SGHMC, 0.03, 0.7, 0.0, 10, SCRIPTS, 0.1, 1e-4, 3e-4, (0.5, 0.999), A, 1024),
        *((None, 30), None, 0.0),
    ),
    # Appendix, table of MNIST.
    "mnist-sgld-paper": (SGLD, 0.001, None, 1.0, 20, TEXT, 1.0, 3e-3, 1e-3, (0.0, 0.9), A, 100, (None, 50), 1e-4, 0.1),
    "mnist-sghmc-paper": (SGHMC, 0.003, 0.5, 1.0, 20, TEXT, 1.0, 3e-3, 1e-3, (0.0, 0.9), A, 100, (None, 50), 1e-4, 0.1),
    "mnist-sgld-released": (
        *(SGLD, 0.001, None, 0.0, 20, SCRIPTS, 1.0, 3e-3, 1e-3, (0.0, 0.9), R, 100),
        *((None, 50), None, 0.1),
    ),
    "mnist-sghmc-released": (
        *(SGHMC, 0.003, 0.5, 0.0, 20, SCRIPTS, 1.0, 3e-3, 1e-3, (0.0, 0.9), R, 100),
        *((None, 50), None, 0.1),
    ),
    # Appendix, table of one-class CIFAR-10. Scripts: 0.9 of the momentum kept is a friction of 0.1.
    "cifar10-one-class-sgld-paper": (
        *(SGLD, 0.03, None, 1.0, 10, TEXT, 0.1, 1e-3, 1e-3, (0.0, 0.9), A, 64),
        *((None, 100), 1e-5, 0.1),
    ),
    "cifar10-one-class-sghmc-paper": (
        *(SGHMC, 1.0, 0.9, 1.0, 10, TEXT, 0.1, 1e-3, 1e-3, (0.0, 0.9), A, 64),
        *((None, 100), 1e-5, 0.1),
    ),
    "cifar10-one-class-sgld-released": (
        *(SGLD, 0.03, None, 0.0, 10, SCRIPTS, 0.1, 1e-3, 1e-3, (0.0, 0.9), R, 64),
        *((None, 100), None, 0.0),
    ),
    "cifar10-one-class-sghmc-released": (
        *(SGHMC, 1.0, 0.1, 0.0, 10, SCRIPTS, 0.1, 1e-3, 1e-3, (0.0, 0.9), R, 64),
        *((None, 100), None, 0.0),
    ),
    # Appendix, image generation; batch and length are the script's, which follows the mean's gradient: δ/64.
    "cifar10-resnet": (
        *(SGLD, 3e-4, None, 1.0, 1, TEXT, 0.1, 3e-4, 1e-4, (0.0, 0.9), A, 64),
        *((500_000, None), 1e-5, 0.1),
    ),
    "cifar10-cnn": (SGLD, 3e-4, None, 1.0, 1, TEXT, 0.1, 3e-4, 1e-4, (0.0, 0.9), A, 64, (500_000, None), 1e-5, 0.1),
    "cifar10-resnet-released": (
        *(SGLD, 3e-4 / 64, None, 0.0, 1, SCRIPTS, 0.1, 3e-4, 1e-4, (0.0, 0.9), A, 64),
        *((500_000, None), None, 0.0),
    ),
    "cifar10-cnn-released": (
        *(SGLD, 3e-4 / 64, None, 0.0, 1, SCRIPTS, 0.1, 3e-4, 1e-4, (0.0, 0.9), A, 64),
        *((500_000, None), None, 0.0),
    ),
    # Appendix, ablation.
    **{
        f"cifar10-ablation-sgld-{steps}": (
            *(SGLD, 1e-4, None, 1.0, steps, TEXT, 0.1, 2e-4, 2e-4, (0.0, 0.9), A, 64),
            *((500_000, None), 1e-5, 0.1),
        )
        for steps in (2, 5, 10)
    },
    **{
        f"cifar10-ablation-sgld-{steps}-released": (
            *(SGLD, 1e-4, None, 0.0, steps, SCRIPTS, 0.1, 2e-4, 2e-4, (0.0, 0.9), A, 64),
            *((500_000, None), None, 0.0),
        )
        for steps in (2, 5, 10)
    },
    "cifar10-ablation-sghmc-10": (
        *(SGHMC, 3e-4, 0.5, 1.0, 10, TEXT, 0.1, 2e-4, 2e-4, (0.0, 0.9), A, 64),
        *((500_000, None), 1e-5, 0.1),
    ),
    "cifar10-ablation-sghmc-10-released": (
        *(SGHMC, 3e-4, 0.5, 0.0, 10, SCRIPTS, 0.1, 2e-4, 2e-4, (0.0, 0.9), A, 64),
        *((500_000, None), None, 0.0),
    ),
}
OURS = {
    # Chosen by us, and what results/ and docs/presets.md are of.
    "gmm-short": (
        *(SGHMC, 0.03, 0.3, 0.02, 10, SCRIPTS, 0.0, 3e-3, 2e-3, (0.0, 0.99), A, 100),
        *((20_000, None), None, 0.1),
    ),
    "gmm-best": (
        *(SGHMC, 0.03, 0.3, 0.02, 10, SCRIPTS, 0.0, 1e-3, 3e-3, (0.0, 0.999), A, 100),
        *((160_000, None), None, 0.0),
    ),
    # Noise levels: a step of 0.3 σ_0² at the smallest, whose σ_0 is 0.02 on the mixture and 0.1 on images.
    "gmm-levels": (
        *(SGHMC, 1.2e-4, 0.3, 1.0, 20, SCRIPTS, 0.0, 3e-3, 0.0, (0.9, 0.999), A, 512),
        *((3000, None), None, 0.1),
    ),
    "gmm-reference": (
        *(SGHMC, 1.2e-4, 0.3, 1.0, 20, SCRIPTS, 0.0, 3e-3, 0.0, (0.9, 0.999), A, 512),
        *((3000, None), None, 0.1),
    ),
    "gmm-levels-generator": (
        *(SGHMC, 1.2e-4, 0.3, 1.0, 1, SCRIPTS, 0.0, 3e-3, 6e-3, (0.9, 0.999), A, 512),
        *((3000, None), None, 0.0),
    ),
    "digits-levels": (
        *(SGHMC, 3e-3, 0.3, 1.0, 20, SCRIPTS, 0.0, 2e-3, 0.0, (0.9, 0.999), A, 128),
        *((1500, None), None, 0.1),
    ),
    "mnist-levels": (
        *(SGHMC, 3e-3, 0.3, 1.0, 20, SCRIPTS, 0.0, 2e-3, 0.0, (0.9, 0.999), A, 100),
        *((2000, None), None, 0.1),
    ),
    "digits": (SGLD, 0.003, None, 1.0, 10, SCRIPTS, 1.0, 1e-3, 1e-3, (0.0, 0.9), A, 64, (600, None), None, 0.3),
    "mnist-interpolation": (
        *(SGHMC, 0.01, 0.5, 0.0, 20, SCRIPTS, 0.1, 3e-4, 3e-4, (0.5, 0.99), A, 100),
        *((None, 10), None, 0.0),
    ),
    "cifar10-tiny": (
        *(SGLD, 3e-4 / 64, None, 0.0, 1, SCRIPTS, 0.1, 2e-4, 2e-4, (0.0, 0.9), A, 32),
        *((1500, None), None, 0.0),
    ),
}


def test_every_preset_is_written_down():
    assert set(SETTINGS) | set(OURS) == set(PRESETS)


@pytest.mark.parametrize("name", SETTINGS | OURS)
def test_a_preset_has_the_settings_that_are_written_down(name):
    assert _settings(PRESETS[name]) == Settings(*(SETTINGS | OURS)[name])


# Potential's noise levels: smallest, widest, how many; the level a revision begins at.
LEVELS = {
    "gmm-levels": (0.02, 4.0, 8, -1),
    "gmm-reference": (0.02, 4.0, 8, -1),
    "gmm-levels-generator": (0.02, 4.0, 8, 2),
    "digits-levels": (0.1, 2.0, 16, -1),
    "mnist-levels": (0.1, 5.0, 16, -1),
}


def test_presets_with_noise_levels_have_those_that_are_written_down():
    presets = {name: p for name, p in PRESETS.items() if isinstance(p.learner, LevelsConfig)}
    networks = {name: network_of(p) for name, p in presets.items()}
    found = {
        name: (network.sigma_min, network.sigma_max, network.n_levels, presets[name].revision.start_level)
        for name, network in networks.items()
    }
    assert found == LEVELS


def network_of(preset):
    """The network with levels, be it around a reference or not."""
    return preset.potential.network if isinstance(preset.potential, Referenced) else preset.potential


@pytest.mark.parametrize("name", LEVELS)
def test_rates_fall_to_nothing_and_weights_are_averaged(name):
    """The last noise of the weights would go into the normaliser."""
    assert (PRESETS[name].train.lr_final, PRESETS[name].train.ema_decay) == (0.0, 0.995)
    assert PRESETS[name].sampler.step_size == pytest.approx(0.3 * network_of(PRESETS[name]).sigma_min ** 2)


# Appendix, tables of networks: units of u and of g, dimension of h.
WIDTHS = {
    "gmm": ((100, 100), 2, (50, 50)),
    "kddcup": ((60, 30, 10), 5, (10, 30, 60)),
    "mnist": ((1000, 500, 250, 250, 250), 100, (500, 500)),
}
FIRST = {"kddcup": ("tanh", "tanh"), "gmm": ("leaky_relu", "relu"), "mnist": ("leaky_relu", "softplus")}


@pytest.mark.parametrize("name", [name for name in SETTINGS if name.split("-")[0] in WIDTHS])
def test_perceptrons_have_the_sizes_and_activations_of_the_text(name):
    preset, which = PRESETS[name], name.split("-")[0]
    found = (preset.potential.widths, preset.generator.latent_dim, preset.generator.widths)
    assert found == WIDTHS[which]
    u, g = FIRST[which]
    u = "relu" if name.startswith("mnist") and name.endswith("released") else u  # that script has ReLU
    assert (preset.potential.activation, preset.generator.activation) == (u, g)
    assert preset.potential.norm == "weight"
    assert preset.potential.slope == 0.2
    assert preset.potential.train_gain == ("last" if name.endswith("released") else "all")


@pytest.mark.parametrize(
    ("names", "box"), [("gmm", None), ("kddcup", None), ("mnist", (0.0, 1.0)), ("cifar10", (-1.0, 1.0))]
)
def test_scripts_of_images_clip_to_the_range_of_pixels_and_the_text_does_not(names, box):
    for name in (name for name in SETTINGS if name.startswith(names)):
        assert PRESETS[name].sampler.box == (box if name.endswith("released") else None)


# ------------------------------------------------------------------------------------------------------ quoted results


def test_the_table_of_the_mixture():
    """Table "Numerical evaluations over the GMM": covered modes, realistic ratio."""
    assert gmm.PAPER == {
        ("GAN", "generation"): ((21.47, 1.44), (0.83, 0.02)),
        ("WGAN-GP", "generation"): ((22.21, 1.75), (0.48, 0.06)),
        ("exclusive-NRF", "generation"): ((23.73, 1.13), (0.50, 0.03)),
        ("inclusive-NRF", "generation"): ((27.46, 1.34), (0.67, 0.08)),
        ("inclusive-NRF", "revision"): ((30.65, 0.04), (0.95, 0.01)),
        ("oracle", "training data"): ((30.70, 0.09), (0.99, 0.00)),
    }


KDDCUP = {
    "OC-SVM": "0.7457 0.8523 0.7954",
    "DSEBM-e": "0.7369 0.7477 0.7423",
    "DAGMM": "0.9297 0.9442 0.9369",
    "ALAD": "0.9427±0.0018 0.9577±0.0018 0.9501±0.0018",
    "inclusive-NRF, SGLD": "0.9452±0.0105 0.9600±0.0113 0.9525±0.0108",
    "inclusive-NRF, SGHMC": "0.9501±0.0043 0.9651±0.0062 0.9575±0.0050",
}


def _pair(text):
    mean, _, sd = text.partition("±")
    return float(mean), float(sd) if sd else None


def test_the_table_of_kddcup():
    """Table "Anomaly detection results on KDDCUP": precision, recall, F1."""
    assert set(kddcup.PAPER) == set(KDDCUP)
    for method, text in KDDCUP.items():
        pairs = [_pair(word) for word in text.split()]
        assert kddcup.PAPER[method] == dict(zip(("precision", "recall", "F1"), pairs, strict=True))
        (precision, _), (recall, _), (f1, _) = pairs
        assert f1 == pytest.approx(
            2 * precision * recall / (precision + recall), abs=1.2e-4
        )  # one by one, then rounded


# Table "Anomaly detection results on MNIST and CIFAR-10 measured by AUCs", a line a class.
ONE_CLASS = {
    "mnist": """
    0 | 98.6±0.0 97.1±0.0 98.0±0.3 97.6±0.7 96.6±1.3 98.0±0.7 98.9±0.7 98.9±0.6
    1 | 99.5±0.0 98.9±0.0 97.3±0.4 98.3±0.6 99.2±0.6 99.7±0.1 99.8±0.1 99.8±0.1
    2 | 82.5±0.1 79.0±0.0 88.6±0.5 85.4±2.4 85.0±2.9 91.7±0.8 93.2±3.2 91.8±4.0
    3 | 88.1±0.0 86.2±0.0 89.9±0.4 86.7±0.9 88.7±2.1 91.9±1.5 93.4±2.0 93.8±2.6
    4 | 94.9±0.0 87.9±0.0 92.7±0.6 86.5±2.0 89.4±1.3 94.9±0.8 95.6±1.2 95.6±1.9
    5 | 77.1±0.0 73.8±0.0 85.5±0.8 78.2±2.7 88.3±2.9 88.5±0.9 89.4±6.5 94.9±1.4
    6 | 96.5±0.0 87.6±0.0 95.6±0.3 94.6±0.5 94.7±2.7 98.3±0.5 98.6±0.5 97.5±2.7
    7 | 93.7±0.0 91.4±0.0 92.0±0.4 92.3±1.0 93.5±1.8 94.6±0.9 96.1±1.1 96.4±1.0
    8 | 88.9±0.0 79.2±0.0 89.9±0.4 86.5±1.6 84.9±2.1 93.9±1.6 85.1±6.7 88.9±3.3
    9 | 93.1±0.0 88.2±0.0 93.5±0.3 90.4±1.8 92.4±1.1 96.5±0.3 93.8±0.8 94.9±1.0
    """,
    "cifar10": """
    airplane | 61.6±0.9 61.2±0.0 60.1±0.7 59.1±5.1 67.1±2.5 61.7±4.1 78.1±2.1 80.3±2.8
    automobile | 63.8±0.6 64.0±0.0 50.8±0.6 57.4±2.9 54.7±3.4 65.9±2.1 71.6±2.1 87.0±1.8
    bird | 50.0±0.5 50.1±0.0 49.2±0.4 48.9±2.4 52.9±3.0 50.8±0.8 65.4±1.8 68.9±2.0
    cat | 55.9±1.3 56.4±0.0 55.1±0.4 58.4±1.2 54.5±1.9 59.1±1.4 63.3±1.9 64.9±2.5
    deer | 66.0±0.7 66.2±0.0 49.8±0.4 54.0±1.3 65.1±3.2 60.9±1.1 70.5±2.2 72.7±1.8
    dog | 62.4±0.8 62.4±0.0 58.5±0.4 62.2±1.8 60.3±2.6 65.7±2.5 64.1±2.7 66.9±4.0
    frog | 74.7±0.3 74.9±0.0 42.9±0.6 51.2±5.2 58.5±1.4 67.7±2.6 75.4±2.4 76.2±2.3
    horse | 62.6±0.6 62.6±0.0 55.1±0.7 58.6±2.9 62.5±0.8 67.3±0.9 66.1±3.7 75.4±3.1
    ship | 74.9±0.4 75.1±0.0 74.2±0.6 76.8±1.4 75.8±4.1 75.9±1.2 75.6±2.8 78.7±1.7
    truck | 75.9±0.3 76.0±0.0 58.9±0.7 67.3±3.0 66.5±2.8 73.1±1.2 70.1±2.0 78.8±2.1
    """,
}
MEANS = {
    "mnist": (91.29, 86.93, 92.30, 89.65, 91.27, 94.80, 94.38, 95.26),
    "cifar10": (64.78, 64.89, 55.46, 59.39, 61.79, 64.81, 70.02, 74.98),
}


@pytest.mark.parametrize("dataset", ONE_CLASS)
def test_the_table_of_one_class_detection(dataset):
    assert METHODS == ("OC-SVM", "KDE", "isolation forest", "DCAE", "AnoGAN", "Deep SVDD", "SGLD", "SGHMC")
    lines = [line.split("|") for line in ONE_CLASS[dataset].strip().splitlines()]
    assert NAMES[dataset] == tuple(name.strip() for name, _ in lines)
    by_method = zip(*(values.split() for _, values in lines), strict=True)
    for method, column, mean in zip(METHODS, by_method, MEANS[dataset], strict=True):
        pairs = tuple(_pair(word) for word in column)
        assert quoted(dataset, method) == pairs
        assert quoted_mean(dataset, method) == mean
        assert np.mean([value for value, _ in pairs]) == pytest.approx(mean, abs=0.011)  # of rounded values


def test_the_tables_of_generation():
    """Table "IS and FID", block CNNs, and table "Ablation study": IS of generation and of revision."""
    generation = {line.name: line.paper for line in GENERATION if line.paper != (None, None)}
    assert generation == {"SNGAN": (7.58, 25.5), "inclusive-NRF, paper": (7.54, 27.9)}
    ablation = {line.method: line.paper for line in LINES if line.paper}
    assert ablation == {
        "SGLD, L = 2": (7.38, 7.43),
        "SGLD, L = 5": (7.45, 7.47),
        "SGLD, L = 10": (7.45, 7.48),
        "SGHMC, L = 10": (7.47, 7.56),
    }
    scores = [revision for _, revision in ablation.values()]
    assert all(below < above for below, above in pairwise(scores))
