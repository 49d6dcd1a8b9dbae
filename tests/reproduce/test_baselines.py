"""The compared detectors: each against what its equations say, and on a task it must solve."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal

from nrf.config import from_json, to_json
from nrf.errors import InputError
from nrf.metrics import auroc
from nrf.reproduce.baselines import ALAD, DAGMM, DCAE, DSEBM, AnoGAN, DeepSVDD, find_baseline
from nrf.reproduce.baselines.alad import discriminator_loss, generator_loss
from nrf.reproduce.baselines.dagmm import RIDGE, Mixture

SMALL = {"batch_size": 64, "learning_rate": 3e-3}


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    centres = np.array([[2, 0, 0, 1], [-2, 1, 0, -1]])
    normal = (centres[rng.integers(2, size=900)] + 0.3 * rng.normal(size=(900, 4))).astype(np.float32)
    odd = rng.uniform(-3, 3, (300, 4)).astype(np.float32)
    return normal[:600], normal[600:], odd


@pytest.mark.parametrize(
    "model",
    [
        DSEBM(epochs=60, **SMALL),
        DSEBM(epochs=60, score="reconstruction", noise=0.3, **SMALL),
        DAGMM(epochs=60, widths=(8, 2), n_components=2, **SMALL),
    ],
    ids=["DSEBM-e", "DSEBM-r", "DAGMM"],
)
def test_each_tells_noise_from_blobs_and_repeats(model, blobs):
    train, normal, odd = blobs
    rows, labels = np.concatenate([normal, odd]), np.repeat([0, 1], [len(normal), len(odd)])
    scores = model.fit(train).score_samples(rows)
    assert auroc(scores, labels) > 0.85
    torch.manual_seed(5)  # the global state is not what it hangs on
    np.testing.assert_array_equal(model.fit(train).score_samples(rows), scores)


def test_a_reconstruction_is_a_step_down_the_energy():
    model = DSEBM(epochs=1, batch_size=8, widths=(5, 3)).fit(np.zeros((16, 2), np.float32))
    x = torch.randn(4, 2, dtype=torch.float32)
    found = x - model.reconstruct(x)
    h = 1e-2
    for column in range(2):
        step = torch.zeros(2)
        step[column] = h
        slope = (model.network(x + step) - model.network(x - step)) / (2 * h)
        torch.testing.assert_close(found[:, column].detach(), slope.detach(), atol=1e-3, rtol=1e-3)


def test_the_energy_is_that_of_the_mixture():
    z = torch.randn(500, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    memberships = torch.softmax(3 * z[:, :2], 1)
    mixture = Mixture.of(z, memberships)
    density = 0.0
    for k in range(2):
        weight = memberships[:, k].numpy()
        mean = np.average(z.numpy(), axis=0, weights=weight)
        covariance = np.cov(z.numpy().T, aweights=weight, ddof=0) + RIDGE * np.eye(3)
        density = density + weight.mean() * multivariate_normal(mean, covariance).pdf(z.numpy())
    np.testing.assert_allclose(mixture.energy(z).numpy(), -np.log(density), rtol=1e-6)
    inverse = sum((1 / np.diag((f @ f.T).numpy())).sum() for f in mixture.factors)
    assert float(mixture.penalty()) == pytest.approx(inverse)


@pytest.fixture(scope="module")
def circle():
    """Rows on a circle; anomalies in and around it, at least four standard deviations away."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, 900)
    normal = 2 * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.15 * rng.normal(size=(900, 2))
    odd = rng.uniform(-2.5, 2.5, (900, 2))
    odd = odd[np.abs(np.linalg.norm(odd, axis=1) - 2) > 0.6][:300]
    rows = np.concatenate([normal[600:], odd]).astype(np.float32)
    return normal[:600].astype(np.float32), rows, np.repeat([0, 1], 300)


@pytest.mark.parametrize(("rate", "beats_chance"), [(1e-3, True), (1e-9, False)])
def test_alad_learns_a_circle_and_repeats(circle, rate, beats_chance):
    """Untrained it does not tell it, so that what is asked for is learned."""
    train, rows, labels = circle
    model = ALAD(epochs=60 if beats_chance else 1, latent_dim=2, width=64, learning_rate=rate)
    scores = model.fit(train).score_samples(rows)
    if beats_chance:
        assert auroc(scores, labels) > 0.85
    else:
        assert auroc(scores, labels) < 0.6
        torch.manual_seed(5)
        np.testing.assert_array_equal(model.fit(train).score_samples(rows), scores)


def test_the_discriminators_of_alad_see_these_pairs_and_have_slopes_of_at_most_one():
    model = ALAD(epochs=1, latent_dim=3, width=16, batch_size=8).fit(np.eye(8, 5, dtype=np.float32))
    nets = model.network
    x, z = torch.randn(6, 5), torch.randn(6, 3)
    code, made = nets.encoder(x), nets.generator(z)
    true, false = nets.logits(x, z)
    wanted = [nets.dxz(x, code), nets.dxx(x, x), nets.dzz(z, z)]
    wanted += [nets.dxz(made, z), nets.dxx(x, nets.generator(code)), nets.dzz(z, nets.encoder(made))]
    for found, value in zip([*true, *false], wanted, strict=True):
        torch.testing.assert_close(found, value)
    for net in (nets.dxz, nets.dxx, nets.dzz):
        for layer in (net.hidden[0], net.out):
            assert float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) == pytest.approx(1.0, abs=0.2)
    distance = (nets.dxx.features(x, x) - nets.dxx.features(x, nets.generator(code))).abs().sum(1)
    np.testing.assert_allclose(model.score_samples(x.numpy()), -distance.detach().numpy(), rtol=1e-5)


def test_the_players_of_alad_want_opposite_answers():
    sure, unsure = [torch.tensor([4.0])], [torch.tensor([0.0])]
    assert float(discriminator_loss(sure, [-sure[0]])) < 0.05 < float(discriminator_loss(unsure, unsure))
    assert float(generator_loss([-sure[0]], sure)) == float(discriminator_loss(sure, [-sure[0]]))


def test_each_network_of_alad_belongs_to_one_player():
    model = ALAD(epochs=1, latent_dim=3, width=16, dropout=0.5, batch_size=8).fit(np.eye(8, 5, dtype=np.float32))
    nets = model.network
    sides = [{id(p) for group in optimizer.param_groups for p in group["params"]} for optimizer in model.optimizers()]
    assert sides[0] == {id(p) for net in (nets.dxz, nets.dxx, nets.dzz) for p in net.parameters()}
    assert sides[1] == {id(p) for net in (nets.encoder, nets.generator) for p in net.parameters()}
    assert [net.out.in_features for net in (nets.dxz, nets.dxx, nets.dzz)] == [16, 16, 4]


def test_the_discriminators_of_alad_drop_units_while_they_train_alone():
    nets = ALAD(epochs=1, latent_dim=3, width=64, dropout=0.5).fit(np.eye(8, 5, dtype=np.float32)).network
    x, z = torch.randn(6, 5), torch.randn(6, 3)
    for train in (True, False):
        for net, pair in ((nets.dxz, (x, z)), (nets.dxx, (x, x)), (nets.dzz, (z, z))):
            net.train(train)
            seen = []
            net.out.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(given[0]))
            net(*pair)
            assert bool((seen[0] == 0).any()) == train  # a leaky ReLU has no zeros of its own


def test_pyods_alad_is_told_from_ours_in_stored_cells():
    """Its cells are stored under the name it had."""
    theirs, own = find_baseline("ALAD (PyOD)"), find_baseline("ALAD")
    stored = {**to_json(theirs), "type": "ALAD"}
    assert from_json(type(theirs), stored) == theirs
    assert to_json(own)["type"] not in ("ALAD", to_json(theirs)["type"])
    with pytest.raises(InputError):
        from_json(type(own), stored)


def test_baselines_say_what_is_wrong():
    with pytest.raises(InputError, match="not fitted yet"):
        DSEBM().score_samples(np.zeros((2, 2), np.float32))
    with pytest.raises(InputError, match="table of numbers"):
        DAGMM().fit(np.zeros(3, np.float32))


def _bars(n, seed, *, upright):
    """A bright bar at a random place on a noisy 28×28 image, lying or upright."""
    rng = np.random.default_rng(seed)
    images = 0.1 * rng.random((n, 1, 28, 28)).astype(np.float32)
    for image, place in zip(images, rng.integers(2, 24, n), strict=True):
        image[0, place : place + 3, 4:24] += 0.8
    return images.swapaxes(2, 3).copy() if upright else images


@pytest.mark.parametrize(
    "model",
    [DCAE(epochs=6, batch_size=50), DeepSVDD(epochs=25, pretrain_epochs=3, batch_size=50, learning_rate=1e-3)],
    ids=["DCAE", "Deep SVDD"],
)
def test_images_are_told_by_their_shape_and_scores_repeat(model):
    train = _bars(400, 0, upright=False)
    rows = np.concatenate([_bars(100, 1, upright=False), _bars(100, 2, upright=True)])
    scores = model.fit(train).score_samples(rows)
    assert auroc(scores, np.repeat([0, 1], 100)) > 0.9
    np.testing.assert_array_equal(model.fit(train).score_samples(rows), scores)
    brighter = model.score_samples(0.5 * rows + 0.2)
    np.testing.assert_allclose(brighter, scores, rtol=1e-3, atol=1e-3)  # contrast and brightness are taken out


def test_anogan_finds_codes_of_what_it_has_learned_and_scores_repeat():
    train = _bars(200, 0, upright=False)
    rows = np.concatenate([_bars(15, 1, upright=False), _bars(15, 2, upright=True)])
    model = AnoGAN(epochs=40, batch_size=50, width=4, latent_dim=8, search_steps=30, learning_rate=2e-3)
    scores = model.fit(train).score_samples(rows)
    assert auroc(scores, np.repeat([0, 1], 15)) > 0.8
    np.testing.assert_array_equal(model.score_samples(rows), scores)
    model.search_steps = 0
    assert (model.score_samples(rows) < scores).mean() > 0.9  # the search brings images nearer
    with pytest.raises(InputError, match="square images"):
        model.fit(np.zeros((10, 5), np.float32))
    with pytest.raises(InputError, match="not fitted"):
        AnoGAN().score_samples(rows)


def _small_anogan(**changes):
    return AnoGAN(**{"epochs": 2, "batch_size": 20, "width": 2, "latent_dim": 4, "search_steps": 3} | changes)


def test_anogan_depends_on_its_seed_alone():
    train, rows = _bars(40, 0, upright=False), _bars(5, 1, upright=False)
    found = []
    for state, seed in ((1, 0), (2, 0), (2, 1)):
        torch.manual_seed(state)
        found.append(_small_anogan(seed=seed).fit(train).score_samples(rows))
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[1], found[2])


def test_the_range_of_the_training_images_is_brought_to_that_of_the_generator():
    train, rows = _bars(40, 0, upright=False), _bars(5, 1, upright=False)
    scores = [_small_anogan().fit(a * train + b).score_samples(a * rows + b) for a, b in ((1.0, 0.0), (4.0, 3.0))]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-3)


def test_a_score_of_anogan_is_of_pixels_and_features_by_their_weights():
    """Of codes as they are drawn, before any step."""
    model, rows = _small_anogan(search_steps=0).fit(_bars(40, 0, upright=False)), _bars(5, 1, upright=False)
    found = {}
    for weight in (0.0, 0.1, 1.0):
        model.feature_weight = weight
        found[weight] = model.score_samples(rows)
    assert not np.allclose(found[0.0], found[1.0])
    np.testing.assert_allclose(found[0.1], 0.9 * found[0.0] + 0.1 * found[1.0], rtol=1e-5)


def test_no_coordinate_of_the_centre_is_close_to_zero():
    model = DeepSVDD(epochs=1, pretrain_epochs=1, batch_size=50).fit(_bars(100, 0, upright=False))
    assert (model.centre.abs() >= 0.1 - 1e-6).all()


@pytest.mark.parametrize("shape", [(3, 30, 30), (1, 28, 24)])
def test_images_that_do_not_fit_the_layers_are_refused(shape):
    with pytest.raises(InputError, match="square"):
        DCAE(epochs=1).fit(np.zeros((10, *shape), np.float32))


def test_a_table_is_no_stack_of_images():
    with pytest.raises(InputError, match="images"):
        DCAE(epochs=1).fit(np.zeros((10, 5), np.float32))
