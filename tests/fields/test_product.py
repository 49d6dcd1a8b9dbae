"""Products of fields: scores, gradients, revision, the normaliser against quadrature."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch

import nrf
from nrf.errors import InputError
from nrf.fields import (
    GaussianReference,
    KernelReference,
    MixtureReference,
    NoReference,
    ProductField,
    contributions,
    importance_integral,
    log_density,
    quadrature,
)
from nrf.models import gradient
from nrf.networks import LevelsMLPPotential, MLPPotential
from nrf.samplers import MALA, SGLD
from nrf.seeds import DrawsFrom, stream
from nrf.targets import PotentialTarget

BOX = torch.full((2,), -12.0), torch.full((2,), 12.0)


def _rows(n=200):
    rng = stream(0, "rows")
    return torch.randn(n, 2, generator=rng) * torch.tensor([1.0, 0.5]) + 2 * torch.randint(2, (n, 1), generator=rng)


def _experts():
    kernel, mixture = KernelReference(n_anchors=100).build((2,)), MixtureReference(n_components=3).build((2,))
    for one in (kernel, mixture):
        one.fit(_rows(), stream(1, "fit"))
    return kernel, mixture


def _product(weights=(0.5, 0.5)):
    return ProductField(_experts(), weights)


def test_the_normaliser_is_the_integral(rng):
    p = _product((0.3, 0.3))
    with pytest.raises(InputError, match="not known yet"):
        log_density(p, _rows(2))
    exact = quadrature(p, BOX).log_value
    assert abs(exact) > 0.5
    found = p.normalise(p.experts[0], rng, sigmas=(0.0, 1.5))
    assert 0 < found.standard_error < 0.03
    assert abs(found.log_value - exact) < 4 * found.standard_error
    assert abs(quadrature(lambda x: log_density(p, x), BOX).log_value) < 4 * found.standard_error + 1e-3
    again = p.normalise(p.experts[1], rng, sigmas=(0.0, 1.5))  # not the integral of what is normalised already
    assert abs(again.log_value - exact) < 4 * again.standard_error


def test_the_standard_error_is_one(rng):
    """Of forty estimates, the spread is what each of them says."""
    p, measure = _product(), _experts()[1]
    found = [importance_integral(p, measure, rng, n_draws=400, sigmas=(0.0, 1.5)) for _ in range(40)]
    spread = float(torch.tensor([one.log_value for one in found]).std())
    said = sum(one.standard_error for one in found) / len(found)
    assert 0.6 < spread / said < 1.6


def test_gaussians_multiply_to_a_gaussian():
    """N(0, 1)^2 N(1, 1)^1 is N(1/3, 1/3), each column."""
    one, two = (GaussianReference().build((2,)) for _ in range(2))
    two.gaussian.mean.fill_(1.0)
    p = ProductField([one, two], [2.0, 1.0])
    x = torch.tensor([[0.3, -1.0], [2.0, 0.5]])
    want = -3 * (x - 1 / 3).square().sum(1) / 2
    torch.testing.assert_close(p(x) - p(x)[0], want - want[0])
    torch.testing.assert_close(p.gradient(x), -3 * (x - 1 / 3))


def test_gradients_are_those_of_autograd():
    with DrawsFrom(stream(0, "weights")):
        network = MLPPotential(widths=(8,), activation="softplus").build((2,))
        levels = LevelsMLPPotential(widths=(8,), n_levels=3).build((2,))
    p = ProductField([*_experts(), network, levels], [0.5, 0.2, 0.7, 0.0]).double()
    x = _rows(7).double()
    want = gradient(lambda rows: p(rows), x)
    torch.testing.assert_close(p.gradient(x), want, rtol=1e-6, atol=1e-6)
    value, slope = p.value_and_gradient(x)
    torch.testing.assert_close(value, p(x))
    torch.testing.assert_close(slope, want, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(PotentialTarget(p)((x,), 0)[0], want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("sampler", [SGLD(0.02), MALA(0.1)], ids=["SGLD", "MALA"])
def test_revised_rows_have_the_law_of_the_product(sampler, rng):
    one, two = (GaussianReference().build((2,)) for _ in range(2))
    two.gaussian.mean.fill_(1.0)
    p = ProductField([one, two], [2.0, 1.0])
    x = p.revise(5 + torch.zeros(4000, 2), sampler, 150, rng)
    torch.testing.assert_close(x.mean(0), torch.full((2,), 1 / 3), rtol=0, atol=0.06)
    torch.testing.assert_close(torch.cov(x.T), torch.eye(2) / 3, rtol=0, atol=0.05)


def test_a_row_is_explained_by_its_revision(rng):
    """A row far out in one column, beside itself after a revision: that column is to blame, and the parts add up."""
    p = _product()
    p.normalise(p.experts[0], rng, sigmas=(0.0, 1.5))
    x = torch.tensor([[1.0, 6.0], [-5.0, 0.0]])
    typical = p.revise(x, SGLD(0.02, temperature=0.0), 200, rng)
    parts = contributions(p, x, typical)
    torch.testing.assert_close(parts.sum(1), log_density(p, x) - log_density(p, typical), rtol=0.01, atol=0.01)
    assert float(parts[0, 1]) < -5 < float(parts[0, 0])
    assert float(parts[1, 0]) < -5 < float(parts[1, 1])
    each = [contributions(expert, x, typical) for expert in p.experts]
    torch.testing.assert_close(parts, 0.5 * each[0] + 0.5 * each[1])
    with pytest.raises(InputError, match="typical row for each row"):
        contributions(p, x, typical[:1])


def test_a_product_is_stored_with_its_experts(tmp_path, rng):
    p = _product((0.3, 0.9))
    p.normalise(p.experts[0], rng)
    again = ProductField([KernelReference().build((2,)), MixtureReference().build((2,))], [1.0, 1.0])
    again.load_state_dict(p.state_dict())
    assert torch.equal(log_density(again, _rows(5)), log_density(p, _rows(5)))


def test_what_cannot_be_a_product_is_refused(rng):
    kernel, mixture = _experts()
    for weights in ([1.0], [0.0, 0.0], [1.0, -0.5], [1.0, math.inf]):
        with pytest.raises(InputError):
            ProductField([kernel, mixture], weights)
    p = _product()
    with pytest.raises(InputError, match="known normaliser"):
        p.normalise(NoReference().build((2,)), rng)
    with pytest.raises(InputError, match="two draws"):
        p.normalise(kernel, rng, n_draws=1)
    with pytest.raises(InputError, match="no noise levels"):
        log_density(p, _rows(2), 1)


def test_the_page_about_fields_runs():
    """Its blocks, one after the other."""
    page = (Path(nrf.__file__).parents[2] / "docs" / "fields.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert 0 < names["integral"].standard_error < 0.5
    assert 0 <= names["found"].strength <= 1
