"""Features of images, learned without labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from nrf.detect import ClipBenignTail, NRFDetector, PrincipalComponents, RotationFeatures
from nrf.detect.features import _turned
from nrf.errors import InputError
from nrf.metrics import auroc


def _arrows(n, seed, *, fallen=False):
    """Steps that grow bright from top to bottom and break off; fallen ones lie on their side."""
    rng = np.random.default_rng(seed)
    images = 0.1 * rng.random((n, 1, 16, 16)).astype(np.float32)
    for image, place in zip(images, rng.integers(0, 8, n), strict=True):
        image[0] += (((np.arange(16) + place) % 8) / 8)[:, None]
    return np.rot90(images, axes=(2, 3)).copy() if fallen else images


@pytest.fixture(scope="module")
def features():
    return RotationFeatures(4, epochs=6, batch_size=32, peak_rate=0.1, shift=0).fit(_arrows(160, 0))


def test_components_and_the_rest():
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(200, 3)) @ rng.normal(size=(3, 12))).astype(np.float32).reshape(200, 3, 2, 2)
    found = PrincipalComponents(3).fit(rows)
    z = found.transform(rows)
    assert z.shape == (200, 4)
    assert z[:, 3].max() < 1e-3
    np.testing.assert_allclose(found.inverse_transform(z), rows, atol=1e-3)
    odd = rows + rng.normal(size=rows.shape)
    assert found.transform(odd)[:, 3].min() > 0.1
    with pytest.raises(InputError, match="at fit it was"):
        found.transform(rows.reshape(200, 12))
    with pytest.raises(InputError, match="from 1 to 12"):
        PrincipalComponents(13).fit(rows)
    with pytest.raises(InputError, match="arrays of numbers"):
        PrincipalComponents(1).fit(np.array([["a", "b"]]))


def test_turns_are_told_and_repeat(features):
    accuracy = features.accuracy(_arrows(80, 1))
    assert accuracy > 0.9
    with pytest.warns(DeprecationWarning, match=r"RotationFeatures\.accuracy"):
        assert features.told(_arrows(80, 1)) == accuracy
    again = clone(features).fit(_arrows(160, 0))
    np.testing.assert_array_equal(again.transform(_arrows(5, 2)), features.transform(_arrows(5, 2)))
    assert features.transform(_arrows(5, 2)).shape == (5, 32)


def test_answers_say_how_sure_the_network_is_in_each_position(features):
    answers = clone(features).set_params(output="answers").fit(_arrows(160, 0))
    upright = answers.transform(_arrows(40, 3))
    assert upright.shape == (40, 4)
    assert (upright <= 0).all()
    assert (np.exp(-(upright**2)) > 0.5).mean() > 0.9
    with torch.no_grad():
        logits = answers.network_(torch.from_numpy(answers.pixels_.encode(_arrows(40, 3))).rot90(2, (2, 3)))[1]
    np.testing.assert_allclose(-(upright[:, 2] ** 2), (logits / 2).log_softmax(1)[:, 2], rtol=1e-3, atol=1e-4)
    fallen = answers.transform(_arrows(40, 3, fallen=True))
    assert (np.exp(-(fallen**2)) < 0.5).mean() > 0.9
    with pytest.raises(InputError, match="'features' or 'answers'"):
        RotationFeatures(output="logits").fit(_arrows(8, 0))


def test_images_are_turned_by_their_label():
    images = torch.rand(2, 1, 4, 4)
    turned, labels = _turned(images)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    for image, label, upright in zip(turned, labels, images.repeat(4, 1, 1, 1), strict=True):
        torch.testing.assert_close(image.rot90(-int(label), (1, 2)), upright)


def test_a_detector_behind_them_finds_fallen_images(features):
    detector = make_pipeline(features, PrincipalComponents(8), NRFDetector(max_iter=150, random_state=0))
    detector.fit(_arrows(160, 0))
    test = np.concatenate([_arrows(60, 1), _arrows(60, 2, fallen=True)])
    assert auroc(detector.score_samples(test), np.repeat([0, 1], 60)) > 0.9


def test_what_cannot_be_turned():
    with pytest.raises(InputError, match="square"):
        RotationFeatures().fit(np.random.default_rng(0).random((4, 1, 8, 12)))


def test_one_side_is_harmless():
    """Anomalies are too high; a density alone takes rows that are lower than usual for anomalies as well."""
    rng = np.random.default_rng(0)
    train, low, usual, high = (rng.normal(size=(n, 2)) for n in (800, 200, 200, 200))
    low, high = low - 5, high + 5
    plain = NRFDetector(max_iter=200, random_state=0).fit(train)
    told = make_pipeline(ClipBenignTail("high"), NRFDetector(max_iter=200, random_state=0)).fit(train)

    def lower(detector, rows):
        """How often they score lower than usual rows."""
        return auroc(detector.score_samples(np.concatenate([usual, rows])), np.repeat([0, 1], 200))

    assert lower(plain, low) > 0.95
    assert lower(told, low) < 0.5
    assert lower(told, high) > 0.95
    cut = ClipBenignTail("low", share=0.5).fit(train)
    np.testing.assert_allclose(cut.transform(high), np.tile(np.median(train, axis=0), (200, 1)), rtol=1e-5)
    np.testing.assert_allclose(cut.transform(low), low, rtol=1e-6)


def test_sides_that_cannot_be():
    rows = np.zeros((4, 2))
    with pytest.raises(InputError, match="'low' or 'high', got 'left'"):
        ClipBenignTail("left").fit(rows)
    with pytest.raises(InputError, match="share must lie between 0 and 1, got 1"):
        ClipBenignTail(share=1).fit(rows)
    with pytest.raises(InputError, match="rows have 3 columns, at fit there were 2"):
        ClipBenignTail().fit(rows).transform(np.zeros((1, 3)))
