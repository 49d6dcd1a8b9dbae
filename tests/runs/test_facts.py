"""Facts of the paper and of its authors' released scripts, beside those in test_paper_values.py.

There stand the rates, steps and lengths of every preset and all quoted tables. Here stand networks as they are built,
what the scripts did besides, and the protocols: data, metrics, numbers of runs.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from nrf.data import gmm, kddcup99
from nrf.learners import ExclusiveConfig, WGANGPConfig
from nrf.reproduce.gmm.cells import DRAW_SIZE, WHOLE, GMMConfig, methods
from nrf.reproduce.kddcup.cells import FLAGGED
from nrf.reproduce.kddcup.experiment import KDDConfig
from nrf.reproduce.samplers.cells import PAPER_ORDER, RunConfig, StudyConfig
from nrf.runs.presets import PRESETS

TEXT = [name for name in PRESETS if name.endswith("-paper")]
SCRIPTS = [name for name in PRESETS if name.endswith("-released") and "ablation" not in name]


def _layers(module, *kinds):
    return [layer for layer in module.modules() if isinstance(layer, kinds)]


def _built(name, shape):
    potential, generator = PRESETS[name].networks(shape, 0)
    return potential, generator


# ------------------------------------------------------------------------------------------------------------ networks

SIZES = {
    "gmm": ((2,), [2, 100, 100, 1], [2, 50, 50, 2]),
    "kddcup-sgld": ((121,), [121, 60, 30, 10, 1], [5, 10, 30, 60, 121]),
    "mnist-sgld": ((784,), [784, 1000, 500, 250, 250, 250, 1], [100, 500, 500, 784]),
}


@pytest.mark.parametrize("setting", ["paper", "released"])
@pytest.mark.parametrize("name", SIZES)
def test_perceptrons_are_built_with_these_sizes(name, setting):
    shape, u, g = SIZES[name]
    for network, sizes in zip(_built(f"{name}-{setting}", shape), (u, g), strict=True):
        linear = _layers(network, nn.Linear)
        assert [layer.in_features for layer in linear] + [linear[-1].out_features] == sizes


@pytest.mark.parametrize("setting", ["paper", "released"])
def test_the_one_class_networks_of_cifar10(setting):
    """96, 96, 96/2, 192, 192, 192/2, 192 without padding, two 1×1 with 192; 512×4×4, then 5×5 of stride 2."""
    potential, generator = _built(f"cifar10-one-class-sgld-{setting}", (3, 32, 32))
    found = [(c.out_channels, c.kernel_size[0], c.stride[0], c.padding[0]) for c in _layers(potential, nn.Conv2d)]
    first = [(96, 3, 1, 1), (96, 3, 1, 1), (96, 3, 2, 1), (192, 3, 1, 1), (192, 3, 1, 1), (192, 3, 2, 1)]
    assert found == [*first, (192, 3, 1, 0), (192, 1, 1, 0), (192, 1, 1, 0)]
    (linear,) = _layers(generator, nn.Linear)
    assert (linear.in_features, linear.out_features) == (100, 512 * 4 * 4)
    ups = [(c.out_channels, c.kernel_size[0], c.stride[0]) for c in _layers(generator, nn.ConvTranspose2d)]
    assert ups == [(256, 5, 2), (128, 5, 2), (3, 5, 2)]
    norms = len(_layers(generator, nn.modules.batchnorm._BatchNorm))
    assert norms == (3 if setting == "released" else 1)  # the scripts have it after every deconvolution but the last


def test_generation_has_codes_of_128_values():
    for name in ("cifar10-resnet", "cifar10-cnn", "cifar10-resnet-released"):
        assert PRESETS[name].generator.latent_dim == 128
    assert PRESETS["cifar10-ablation-sgld-2"].potential.norm == "batch"
    assert PRESETS["cifar10-cnn"].potential.norm == "spectral"


# ------------------------------------------------------------------------------------- what the released scripts did


@pytest.mark.parametrize("name", [name for name in SCRIPTS if not name.startswith(("cifar10-resnet", "cifar10-cnn"))])
def test_scripts_revise_x_alone_and_train_the_last_gain(name):
    preset = PRESETS[name]
    assert preset.revision.target == "x"
    assert preset.potential.train_gain == "last"
    assert preset.sampler.temperature == (0.005 if name.startswith("gmm") else 0.0)


@pytest.mark.parametrize("name", TEXT)
def test_the_text_revises_codes_too_with_all_of_the_noise(name):
    preset = PRESETS[name]
    assert (preset.revision.target, preset.sampler.temperature) == ("joint", 1.0)
    assert preset.potential.train_gain == "all"


def test_the_scripts_noise_on_the_mixture_is_a_hundredth():
    sampler = PRESETS["gmm-released"].sampler
    assert (2 * sampler.step_size * sampler.temperature) ** 0.5 == pytest.approx(0.01)
    assert (2 * PRESETS["gmm-paper"].sampler.step_size) ** 0.5 == pytest.approx(0.1414, abs=1e-4)


def test_the_script_of_the_mixture():
    generator, potential = PRESETS["gmm-released"].generator, PRESETS["gmm-released"].potential
    assert (generator.sigma, generator.output_norm, generator.statistics) == (0.0, "weight", "batch")
    assert potential.data_init
    assert PRESETS["gmm-released"].learner.control_weight == 0.0
    released = {m.name: m.preset for m in methods(GMMConfig()) if m.setting == "released"}
    wgan, exclusive = released["WGAN-GP"].learner, released["exclusive-NRF"].learner
    assert isinstance(wgan, WGANGPConfig)
    assert (wgan.penalty_weight, wgan.n_critic) == (10.0, 1)
    assert isinstance(exclusive, ExclusiveConfig)
    assert (exclusive.entropy, exclusive.entropy_weight) == ("batch-norm", 0.01)
    (whole,) = (m for m in methods(GMMConfig()) if m.setting == WHOLE)
    assert whole.preset.train.iterations == PRESETS["gmm-released"].train.iterations == 500_000


@pytest.mark.parametrize("sampler", ["sgld", "sghmc"])
@pytest.mark.parametrize("data", ["kddcup", "cifar10-one-class"])
def test_the_scripts_of_detection_start_from_unit_gains(data, sampler):
    """`init_mode` is never set in kdd_dec.py and cifar_dec.py, so their layers keep the gains they are built with."""
    preset, text = PRESETS[f"{data}-{sampler}-released"], PRESETS[f"{data}-{sampler}-paper"]
    assert not preset.potential.data_init
    assert (preset.potential.initial_std, preset.generator.initial_std) == (0.05, 0.05)
    assert preset.generator.output_norm == "weight"
    assert (text.potential.initial_std, text.generator.initial_std) == (None, None)


def test_the_scripts_of_mnist_and_of_generation():
    mnist = PRESETS["mnist-sgld-released"].generator
    assert (mnist.output_norm, mnist.initial_std) == ("weight", 0.05)
    assert (PRESETS["mnist-sgld-released"].potential.initial_std, PRESETS["gmm-released"].potential.initial_std) == (
        0.05,
        0.1,
    )
    assert (mnist.prior, mnist.sigma, mnist.output) == ("uniform", 0.1, "sigmoid")
    assert PRESETS["mnist-sgld-paper"].generator.prior == "normal"
    assert PRESETS["cifar10-resnet-released"].learner.generator_loss == "potential"
    assert PRESETS["cifar10-resnet"].learner.generator_loss == "regression"


# ----------------------------------------------------------------------------------------------------------- protocols


def test_the_sampler_study():
    config = StudyConfig()
    assert config.runs == 10
    assert config.run == RunConfig(
        dim_x=50, dim_h=50, chains=500, steps=2000, schedule=(10.0, 1000.0, 2.0), friction=0.1, coopnet_steps=20
    )
    assert PAPER_ORDER == ("HMC", "SGHMC", "LD", "SGLD", "CoopNet")


def test_the_mixture_and_its_metric():
    radii = np.linalg.norm(gmm.means(), axis=1).round(9)
    assert np.unique(radii, return_counts=True)[1].tolist() == [8, 8, 8, 8]
    assert sorted(set(radii.tolist())) == [2, 3, 4, 5]
    assert (gmm.SIGMA, gmm.POINTS_PER_MODE, len(gmm.load().train)) == (0.1, 50, 1600)
    config = GMMConfig()
    assert (DRAW_SIZE, config.draws, config.replicas, config.iterations) == (100, 100, 10, 160_000)


def test_kddcup_and_its_metric():
    assert len(kddcup99.FEATURES) - len(kddcup99.CATEGORICAL) == 34
    assert len(kddcup99.CATEGORICAL) == 7
    config = KDDConfig()
    assert (FLAGGED, config.splits, config.epochs) == (0.2, 20, 30)
    halves = kddcup99.halves(np.arange(1000) % 5 // 4, 0)
    assert len(halves.test) == 500


def test_initial_weights_do_not_depend_on_torchs_own_state():
    """So that the sizes above are of networks anybody gets."""
    torch.manual_seed(1)
    first, _ = _built("gmm-paper", (2,))
    torch.manual_seed(2)
    again, _ = _built("gmm-paper", (2,))
    for one, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
