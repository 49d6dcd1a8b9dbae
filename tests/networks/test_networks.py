"""What the contract cannot know: sizes of the paper's networks, weight norm's gain, data-dependent initialisation."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nrf.errors import InputError
from nrf.models import LatentGenerator, frozen
from nrf.networks import (
    MLPGenerator,
    MLPPotential,
    OneClassCNNGenerator,
    OneClassCNNPotential,
    ResNetGenerator,
    ResNetPotential,
    StandardCNNGenerator,
    StandardCNNPotential,
    data_dependent_init,
)
from nrf.networks.layers import activation, gain_of, is_weight_normed


@pytest.fixture(autouse=True)
def _seed():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def _weights(module):
    """Sizes of the weights that enter the arithmetic."""
    layers = (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)
    return [tuple(m.weight.shape) for m in module.modules() if isinstance(m, layers)]


def test_one_class_cnn_is_the_papers():
    u = OneClassCNNPotential().build((3, 32, 32))
    channels = [(96, 3), (96, 96), (96, 96), (192, 96), (192, 192), (192, 192), (192, 192)]
    assert _weights(u) == [(o, i, 3, 3) for o, i in channels] + [(192, 192, 1, 1)] * 2 + [(1, 192)]
    x = torch.zeros(1, 3, 32, 32)
    sides = []
    for layer in u.body:
        x = layer(x)
        if isinstance(layer, nn.Conv2d):
            sides.append(x.shape[-1])
    assert sides == [32, 32, 16, 16, 16, 8, 6, 6, 6]
    g = OneClassCNNGenerator().build((3, 32, 32))
    assert _weights(g) == [(8192, 100), (512, 256, 5, 5), (256, 128, 5, 5), (128, 3, 5, 5)]


def test_standard_cnn_is_the_sngan_papers():
    u = StandardCNNPotential().build((3, 32, 32))
    assert [w[0] for w in _weights(u)] == [64, 64, 128, 128, 256, 256, 512, 1]
    assert _weights(u)[-1] == (1, 512 * 4 * 4)
    g = StandardCNNGenerator().build((3, 32, 32))
    assert _weights(g) == [(8192, 128), (512, 256, 4, 4), (256, 128, 4, 4), (128, 64, 4, 4), (3, 64, 3, 3)]


def test_resnet_is_the_sngan_papers():
    """Four blocks of 128 channels and three of 256; the counts of parameters follow from the table."""
    u, g = ResNetPotential(norm="none").build((3, 32, 32)), ResNetGenerator().build((3, 32, 32))
    conv = lambda i, o, k: i * o * k * k + o  # noqa: E731
    first = conv(3, 128, 3) + conv(128, 128, 3) + conv(3, 128, 1)
    second = 2 * conv(128, 128, 3) + conv(128, 128, 1)
    assert sum(p.numel() for p in u.parameters()) == first + second + 4 * conv(128, 128, 3) + 129
    block = 2 * conv(256, 256, 3) + conv(256, 256, 1) + 4 * 256
    assert sum(p.numel() for p in g.parameters()) == (128 * 4096 + 4096) + 3 * block + 2 * 256 + conv(256, 3, 3)


@pytest.mark.parametrize(
    ("which", "trained"), [("all", [True] * 3), ("last", [False, False, True]), ("none", [False] * 3)]
)
def test_trained_gain(which, trained):
    u = MLPPotential(widths=(4, 3), train_gain=which).build((2,))
    gains = [gain_of(m) for m in u.modules() if is_weight_normed(m)]
    assert [g.requires_grad for g in gains] == trained


@pytest.mark.parametrize(
    ("config", "event"),
    [
        (MLPPotential(widths=(60, 50), initial_std=0.05, train_gain="last"), (40,)),
        (OneClassCNNPotential(width=8, initial_std=0.05, train_gain="last"), (3, 16, 16)),
        (MLPGenerator(widths=(60, 50), output_norm="weight", initial_std=0.05), (40,)),
        (OneClassCNNGenerator(width=8, output_norm="weight", initial_std=0.05), (3, 8, 8)),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, tuple) else "",
)
def test_weight_norm_starts_as_the_scripts_do(config, event):
    torch.manual_seed(0)
    layers = [m for m in config.build(event).modules() if is_weight_normed(m)]
    assert layers
    directions = torch.cat([m.parametrizations["weight"].original1.detach().flatten() for m in layers])
    assert abs(float(directions.std()) / 0.05 - 1) < 0.1
    for layer in layers:
        assert (gain_of(layer) == 1).all()
        assert (layer.bias == 0).all()
        dims = (0, 2, 3) if isinstance(layer, nn.ConvTranspose2d) else tuple(range(1, layer.weight.ndim))
        torch.testing.assert_close(layer.weight.square().sum(dims), torch.ones(len(layer.bias)))


def test_a_frozen_gain_keeps_each_units_norm(rng):
    u = MLPPotential(widths=(4, 3), train_gain="none").build((2,))
    layer = next(m for m in u.modules() if is_weight_normed(m))
    before, norms = layer.weight.detach().clone(), layer.weight.detach().norm(dim=1)
    optimizer = torch.optim.Adam([p for p in u.parameters() if p.requires_grad], lr=0.1)
    u(torch.randn(8, 2, generator=rng)).sum().backward()
    optimizer.step()
    assert not torch.allclose(layer.weight, before, atol=1e-3)
    torch.testing.assert_close(layer.weight.norm(dim=1), norms)


@pytest.mark.parametrize("config", [MLPPotential(widths=(16, 8)), OneClassCNNPotential(width=4)])
def test_data_dependent_init_standardises_every_layer(config, rng):
    event = (5,) if isinstance(config, MLPPotential) else (3, 16, 16)
    u = config.build(event)
    x = 3 * torch.randn(64, *event, generator=rng) + 1
    data_dependent_init(u, x)
    outputs = []
    for layer in u.modules():
        if is_weight_normed(layer):
            layer.register_forward_hook(lambda m, i, out: outputs.append(out.detach()))
    u(x)
    for out in outputs:
        dims = [d for d in range(out.ndim) if d != 1]
        torch.testing.assert_close(out.mean(dims), torch.zeros(out.shape[1]), atol=1e-4, rtol=0)
        torch.testing.assert_close(out.std(dims), torch.ones(out.shape[1]), atol=1e-3, rtol=0)


def test_bias_spread_moves_the_kinks_of_hidden_units_only(rng):
    u = MLPPotential(widths=(400, 300)).build((5,))
    x = torch.randn(500, 5, generator=rng)
    data_dependent_init(u, x, spread=0.7, rng=rng)
    first, second, last = (m for m in u.modules() if is_weight_normed(m))
    out = first(x)
    assert out.mean(0).std().item() == pytest.approx(0.7, rel=0.15)
    assert out.std(0).mean().item() == pytest.approx(1.0, rel=1e-3)
    assert second(nn.functional.leaky_relu(out, 0.2)).mean(0).std().item() == pytest.approx(0.7, rel=0.15)
    assert u(x).mean().item() == pytest.approx(0.0, abs=1e-4)
    assert last.out_features == 1


def test_data_dependent_init_needs_weight_norm():
    with pytest.raises(InputError, match="norm to 'weight'"):
        data_dependent_init(MLPPotential(norm="none").build((2,)), torch.zeros(3, 2))


def test_batch_statistics_couple_rows_and_running_ones_do_not(rng):
    h = torch.randn(6, 2, generator=rng)
    for statistics, coupled in (("running", False), ("batch", True)):
        g = MLPGenerator(latent_dim=2, statistics=statistics).build((3,))
        with frozen(g), torch.no_grad():
            together, part = g(h)[:3], g(h[:3])
        assert torch.allclose(together, part, atol=1e-6) is not coupled


def test_normalised_weights_are_computed_once_a_revision(rng):
    """Spectral norm's power iteration is a visible sign of each evaluation of the weight."""
    u = MLPPotential(widths=(6,), norm="spectral").build((2,))
    layer = next(m for m in u.modules() if isinstance(m, nn.Linear))
    calls = []
    layer.parametrizations["weight"][0].register_forward_hook(lambda *_: calls.append(1))
    with frozen(u):
        for _ in range(5):
            u(torch.randn(3, 2, generator=rng))
    assert len(calls) == 1


def test_log_joint_is_the_gaussian_density_up_to_a_constant(rng):
    q = LatentGenerator(nn.Linear(2, 3), 2, sigma=0.4)
    x, h = torch.randn(5, 3, generator=rng), torch.randn(5, 2, generator=rng)
    likelihood = torch.distributions.Normal(q(h), 0.4).log_prob(x).sum(1)
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(h).sum(1)
    gap = q.log_joint(x, h) - (likelihood + prior)
    torch.testing.assert_close(gap, gap[:1].expand(5))


def test_priors(rng):
    normal = LatentGenerator(nn.Linear(3, 3), 3, 0.1).sample_latent(4000, rng)
    uniform = LatentGenerator(nn.Linear(3, 3), 3, 0.1, prior="uniform").sample_latent(4000, rng)
    assert normal.std().item() == pytest.approx(1.0, rel=0.05)
    assert uniform.min() >= 0
    assert uniform.max() <= 1
    assert uniform.mean().item() == pytest.approx(0.5, abs=0.02)


def test_sigma_zero_has_no_density(rng):
    q = LatentGenerator(nn.Linear(2, 3), 2, sigma=0.0)
    x, h = q.propose(4, rng)
    torch.testing.assert_close(x, q(h).detach())
    with pytest.raises(InputError, match="sigma"):
        q.log_joint(x, h)
    with pytest.raises(InputError, match="negative"):
        LatentGenerator(nn.Linear(2, 3), 2, sigma=-1.0)


def test_confinement_is_a_gaussian_factor():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        u = MLPPotential(widths=(4,), confinement=2.0).build((1, 3))
    x = torch.randn(5, 1, 3, generator=torch.Generator().manual_seed(0))
    free = u.body(x).squeeze(-1)
    torch.testing.assert_close(u(x), free - x.flatten(1).square().sum(1) / 8)
    far = 1e4 * x
    assert (u(far) < u(x)).all()
    with pytest.raises(InputError, match="confinement must be positive"):
        MLPPotential(confinement=0.0)


def test_our_tanh_is_the_tanh():
    ours, x = activation("tanh"), torch.linspace(-30, 30, 10_001, dtype=torch.double, requires_grad=True)
    torch.testing.assert_close(ours(x), torch.tanh(x), rtol=0, atol=1e-15)
    torch.testing.assert_close(ours(x.float()), torch.tanh(x).float(), rtol=0, atol=2e-7)
    assert torch.autograd.gradcheck(ours, torch.linspace(-3, 3, 7, dtype=torch.double, requires_grad=True))
