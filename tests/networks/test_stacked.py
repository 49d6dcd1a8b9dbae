"""Replicas as one module, and the closed forms of plain networks."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from nrf.errors import InputError
from nrf.models import frozen, gradient, together
from nrf.networks import (
    GENERATORS,
    POTENTIALS,
    MLPGenerator,
    MLPPotential,
    OneClassCNNPotential,
    StandardCNNPotential,
    replica_state,
    stack,
)
from nrf.networks.layers import Scalar
from nrf.seeds import Streams, places, rand, randn, stream, streams

R, ROWS = 3, 4

MLPS = {
    **{
        f"potential, {norm} norm": MLPPotential(widths=(8, 6), norm=norm)
        for norm in ("weight", "spectral", "batch", "none")
    },
    "generator": MLPGenerator(latent_dim=5, widths=(8, 6), output_norm="weight", output="tanh"),
    "generator, waves": MLPGenerator(latent_dim=5, widths=(8,), norm="none", n_waves=4),
    "generator, batch statistics": MLPGenerator(latent_dim=5, widths=(8,), statistics="batch"),
}


@pytest.fixture(autouse=True)
def seeded():
    torch.set_default_dtype(torch.float64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
    torch.set_default_dtype(torch.float32)


def _compare(networks, x, *, train):
    """Values, gradients of the parameters, and all state, replica by replica."""
    stacked = stack(networks)
    for net in (*networks, stacked):
        net.train(train)
        net.zero_grad()
    own = torch.cat([net(rows) for net, rows in zip(networks, x.chunk(R), strict=True)])
    ours = stacked(x)
    torch.testing.assert_close(ours, own, rtol=1e-8, atol=1e-9)
    weights = torch.randn_like(own)
    (ours * weights).sum().backward()
    (own * weights).sum().backward()
    parameters, state = dict(stacked.named_parameters()), stacked.state_dict()
    for i, net in enumerate(networks):
        mine = replica_state(state, i)
        assert set(mine) == set(net.state_dict())
        for name, value in net.state_dict().items():
            torch.testing.assert_close(mine[name], value, rtol=1e-8, atol=1e-9, msg=name)
        for name, parameter in net.named_parameters():
            assert parameters[name].requires_grad == parameter.requires_grad, name
            if parameter.grad is not None:
                torch.testing.assert_close(parameters[name].grad[i], parameter.grad, rtol=1e-6, atol=1e-8, msg=name)


@pytest.mark.parametrize("train", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("config", MLPS.values(), ids=MLPS)
def test_stacked_mlps_are_the_replicas(config, train):
    n_in = getattr(config, "latent_dim", 5)
    _compare([config.build((5,)) for _ in range(R)], torch.randn(R * ROWS, n_in), train=train)


@pytest.mark.parametrize("train", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", [n for n in GENERATORS if n != "mlp"])
def test_stacked_convolutional_pairs_are_the_replicas(name, train):
    small = {"width": 4} if name == "resnet" else {}
    shape = (3, 32, 32)
    fields = POTENTIALS[name].__dataclass_fields__
    config = POTENTIALS[name](**{k: v for k, v in small.items() if k in fields})
    _compare([config.build(shape) for _ in range(R)], torch.randn(R * 2, *shape), train=train)
    fields = GENERATORS[name].__dataclass_fields__
    config = GENERATORS[name](latent_dim=5, **{k: v for k, v in small.items() if k in fields})
    _compare([config.build(shape) for _ in range(R)], torch.randn(R * 2, 5), train=train)


class Scaled(nn.Module):
    """A module of the user's own, with a parameter beside its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4))
        self.scale = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return self.inner(x) * self.scale


def test_modules_without_a_stacked_form_go_by_vmap():
    networks = [nn.Sequential(Scaled(), nn.LayerNorm(4), nn.PReLU()) for _ in range(R)]
    for net in networks:
        nn.init.normal_(net[1].weight)
    _compare(networks, torch.randn(R * ROWS, 5), train=True)


def test_what_cannot_be_stacked_says_why():
    odd = [parametrizations.orthogonal(nn.Linear(3, 3)) for _ in range(2)]
    with pytest.raises(InputError, match="no stacked form; use weight or spectral norm"):
        stack(odd)
    padded = [nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect") for _ in range(2)]
    with pytest.raises(InputError, match="pad convolutions with zeros"):
        stack(padded)
    mixed = [Scaled() for _ in range(2)]
    for module in mixed:
        parametrizations.weight_norm(module.inner[0])
    with pytest.raises(InputError, match="parametrised layers beside parameters of its own"):
        stack(mixed)


def test_stacking_leaves_the_replicas_alone():
    networks = [MLPPotential(widths=(4,)).build((2,)) for _ in range(2)]
    before = [p.clone() for p in networks[0].parameters()]
    stacked = stack(networks)
    with torch.no_grad():
        for p in stacked.parameters():
            p.add_(1)
    assert all(torch.equal(a, b) for a, b in zip(before, networks[0].parameters(), strict=True))


def test_batches_go_together_replica_by_replica():
    networks = [MLPPotential(widths=(4,), norm="batch").build((2,)) for _ in range(R)]
    stacked = stack(networks)
    a, b = torch.randn(R * 4, 2), torch.randn(R * 6, 2)
    u_a, u_b = together(stacked, a, b)
    for i, net in enumerate(networks):
        own_a, own_b = together(net, a.chunk(R)[i], b.chunk(R)[i])
        torch.testing.assert_close(u_a.chunk(R)[i], own_a)
        torch.testing.assert_close(u_b.chunk(R)[i], own_b)


@pytest.mark.parametrize("replicas", [1, R])
@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "tanh", "softplus"])
def test_closed_form_gradient_of_the_potential(activation, replicas):
    for shape in ((5,), (1, 4, 5)):
        confinement = 2.0 if activation == "tanh" else None
        config = MLPPotential(widths=(8, 6), activation=activation, confinement=confinement)
        nets = [config.build(shape) for _ in range(replicas)]
        u = stack(nets) if replicas > 1 else nets[0]
        assert hasattr(u, "gradient")
        x = torch.randn(replicas * ROWS, *shape)
        with frozen(u):
            by_autograd = gradient(lambda rows, u=u: Scalar.forward(u, rows), x)
            torch.testing.assert_close(gradient(u, x), by_autograd, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("replicas", [1, R])
@pytest.mark.parametrize("norm", ["weight", "spectral", "none"])
@pytest.mark.parametrize("kind", [OneClassCNNPotential, StandardCNNPotential])
def test_closed_form_gradient_of_convolutional_potentials(kind, norm, replicas):
    config = kind(width=3, norm=norm)
    nets = [config.build((3, 16, 16)) for _ in range(replicas)]
    u = stack(nets) if replicas > 1 else nets[0]
    x = torch.randn(replicas * 4, 3, 16, 16)
    with frozen(u):
        by_autograd = gradient(lambda rows: Scalar.forward(u, rows), x)
        assert by_autograd.abs().max() > 0
        torch.testing.assert_close(gradient(u, x), by_autograd, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("replicas", [1, R])
@pytest.mark.parametrize("output", ["identity", "sigmoid", "tanh"])
@pytest.mark.parametrize(("norm", "waves"), [("batch", 0), ("none", 0), ("none", 4)])
def test_closed_form_of_the_generator(norm, waves, output, replicas):
    config = MLPGenerator(latent_dim=3, widths=(8, 6), norm=norm, output=output, sigma=0.3, n_waves=waves)
    nets = [config.build((1, 2, 2)) for _ in range(replicas)]
    for net in nets:
        net(torch.randn(50, 3) * 3 + 1)  # so that running statistics are not those of the start
    q = stack(nets) if replicas > 1 else nets[0]
    h, x = torch.randn(replicas * ROWS, 3), torch.randn(replicas * ROWS, 1, 2, 2)
    with frozen(q):
        assert q.network.has_closed_form
        delta, pull = q.latent_gradient(x, h)
        truth = gradient(lambda h: q.log_joint(x, h), h)
        torch.testing.assert_close(delta, truth, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(pull, q(h) / 0.09)


def test_batch_statistics_have_no_closed_form():
    q = MLPGenerator(latent_dim=3, widths=(8,), statistics="batch", sigma=0.3).build((2,))
    with frozen(q):
        assert not q.network.has_closed_form
        x, h = torch.randn(6, 2), torch.randn(6, 3)
        torch.testing.assert_close(q.latent_gradient(x, h)[0], gradient(lambda h: q.log_joint(x, h), h))


def test_draws_of_streams_are_those_of_each_alone():
    seeds = [7, 8, 9]
    many = streams(seeds, "x")
    assert isinstance(many, Streams)
    assert isinstance(streams(seeds[:1], "x"), torch.Generator)
    drawn = [randn((6, 2), many), rand((6,), many), places(30, 6, many, repeat=False), places(30, 6, many, repeat=True)]
    for i, seed in enumerate(seeds):
        one = stream(seed, "x")
        own = [randn((2, 2), one), rand((2,), one)]
        own += [places(10, 2, one, repeat=repeat) + 10 * i for repeat in (False, True)]
        for ours, alone in zip(drawn, own, strict=True):
            assert torch.equal(ours.chunk(3)[i], alone)


def test_streams_go_on_from_their_state():
    many = streams([1, 2], "x")
    state = many.get_state()
    first = randn((4,), many)
    many.set_state(state)
    assert torch.equal(randn((4,), many), first)
