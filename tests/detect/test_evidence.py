"""Online p-values are exactly uniform and independent, and the evidence of bets on them keeps Ville's bound."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from scipy.stats import binom, kstest

from nrf.detect import evidence
from nrf.detect.evidence import PRIOR, Bets, OnlineRanks, all_bets

STREAMS = 400
"""Independent streams, side by side as series."""


def p_values(n_reference: int, n_rows: int, draw, seed: int = 0, burn_in: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    reference = draw(rng, (n_reference, STREAMS)) if n_reference else None
    ranks = OnlineRanks(STREAMS, seed + 1000, reference, burn_in)  # not the numbers that the rows are made of
    return ranks.update(draw(rng, (n_rows, STREAMS)))


def normal(rng, shape):
    return rng.normal(size=shape)


def tied(rng, shape):
    """Three levels, one of them rare."""
    return rng.choice([0.0, 1.0, 2.0], p=[0.7, 0.29, 0.01], size=shape)


@pytest.mark.parametrize("draw", [normal, tied])
@pytest.mark.parametrize(("n_reference", "burn_in"), [(0, 0), (5, 0), (1000, 0), (0, 30)])
def test_p_values_are_uniform_and_independent(n_reference, burn_in, draw, monkeypatch):
    """At each time over the streams, and one with another; with fewer bins than reference values, too."""
    monkeypatch.setattr(evidence, "MOST_BINS", 64)
    p = p_values(n_reference, 100, draw, burn_in=burn_in)
    assert p.shape == (100 - burn_in, STREAMS)
    assert p.min() > 0
    assert p.max() <= 1
    at = [0, 1, 5, len(p) - 1]
    assert min(kstest(p[i], "uniform").pvalue for i in at) > 1e-4
    assert kstest(p.ravel(), "uniform").pvalue > 1e-4
    pairs = np.corrcoef(p)[np.triu_indices(len(p), 1)]  # each of about 1/√STREAMS
    z = pairs * np.sqrt(STREAMS)
    assert abs(z.mean()) < 4.5 / np.sqrt(len(z))
    assert z.std() == pytest.approx(1.0, abs=0.1)


def test_ranks_among_a_fixed_set_are_not_independent():
    """The neighbour's test has the power it claims: given the calibration rows, all p-values share a bias."""
    rng = np.random.default_rng(0)
    reference, rows = np.sort(rng.normal(size=(100, STREAMS)), 0), rng.normal(size=(100, STREAMS))
    fixed = np.stack([np.searchsorted(reference[:, i], rows[:, i]) for i in range(STREAMS)], 1)
    p = (fixed + rng.random(fixed.shape)) / 101
    z = np.corrcoef(p)[np.triu_indices(100, 1)] * np.sqrt(STREAMS)
    assert z.mean() > 2 * 4.5 / np.sqrt(len(z))


def test_ranks_are_what_they_are_by_counting():
    """With as many bins as values, a rank is the share of slots below, plus a random part of its own."""
    rng = np.random.default_rng(1)
    reference, rows = rng.normal(size=(40, 1)), rng.normal(size=(300, 1))
    p = OnlineRanks(1, 0, reference).update(rows)[:, 0]
    for i in range(len(rows)):
        gap = np.searchsorted(np.sort(reference[:, 0]), [*rows[:i, 0], rows[i, 0]])
        lower, same = (gap[:-1] < gap[-1]).sum() + gap[-1], (gap[:-1] == gap[-1]).sum() + 1
        assert lower / (41 + i) < p[i] <= (lower + same) / (41 + i)


def test_a_missing_value_is_a_tie_and_a_shift_is_seen():
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=(300, 2)), rng.normal(size=(100, 2))])
    rows[300:, 0] = -1e300
    rows[300:, 1] += 3
    p = OnlineRanks(2, 0, burn_in=100).update(rows)
    assert p[:200].mean(0) == pytest.approx([0.5, 0.5], abs=0.06)
    assert p[200:220, 0].max() < 0.1
    assert np.median(p[200:, 1]) > 0.9


def test_bets_have_the_mean_1_over_uniform_p_values():
    grid = (np.arange(200_000) + 0.5) / 200_000
    means = all_bets(grid).mean(0)
    assert means == pytest.approx(np.ones(len(PRIOR)), abs=2e-3)
    assert PRIOR.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("largest", [1.0, 0.01])
def test_the_capital_is_that_of_betting_by_hand(largest):
    """A sum over all starts, one by one, and what is held back; over several blocks, where bets win and where not."""
    p = largest * np.random.default_rng(0).random((100, 1))
    bets = all_bets(p[:, 0])
    held = 1 / (1 + np.log1p(np.arange(101) / evidence.START))
    by_hand = held[100] + sum((held[k] - held[k + 1]) * (PRIOR * bets[k:].prod(0)).sum() for k in range(100))
    assert np.exp(Bets(1).update(p)[-1, 0]) == pytest.approx(by_hand, rel=1e-12)


@pytest.mark.parametrize("draw", [normal, tied])
@pytest.mark.parametrize("n_reference", [20, 500])
def test_evidence_keeps_villes_bound(n_reference, draw):
    """At most the level of all streams ever reach 1/level; a binomial count above its 99.99 % point is a failure."""
    log_e = Bets(STREAMS).update(p_values(n_reference, 800, draw))
    for level in (0.02, 0.05, 0.2):
        alarms = int((log_e.max(0) >= -np.log(level)).sum())
        assert alarms <= binom.ppf(0.9999, STREAMS, level), level


def test_a_change_is_seen():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 50))
    rows[500:] += 0.7
    log_e = Bets(50).update(OnlineRanks(50, 0, rng.normal(size=(200, 50))).update(rows))
    assert (log_e[:500].max(0) >= np.log(100)).sum() <= 3
    assert (log_e.max(0) >= np.log(100)).all()


def test_batches_and_stops_do_not_matter():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(700, 3)).round(1)

    def run(cuts, *, stop=False):
        ranks, bets, found = OnlineRanks(3, 7, burn_in=50), Bets(3), []
        for part in np.split(rows, cuts):
            found.append(bets.update(ranks.update(part)))
            if stop:
                ranks = OnlineRanks.from_json(json.loads(json.dumps(ranks.to_json(), allow_nan=False)))
                bets = Bets.from_json(json.loads(json.dumps(bets.to_json(), allow_nan=False)))
        return np.concatenate(found), ranks.to_json(), bets.to_json()

    whole, *state = run([])
    for cuts, stop in ((range(1, 700), False), ([10, 49, 50, 51, 300], True), ([256, 257, 512], True)):
        found, *after = run(cuts, stop=stop)
        np.testing.assert_array_equal(found, whole)
        assert after == state


def test_another_seed_is_another_stream():
    rows = np.zeros((50, 1))
    first, same, other = (OnlineRanks(1, seed).update(rows) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert (first != other).all()


def test_damaged_states_are_refused():
    state = OnlineRanks(1, 0, np.arange(5.0)[:, None]).to_json()
    for change in ({"counts": [[1, 2]]}, {"edges": [[1.0, None, 3.0, 4.0, 5.0]]}, {"n_series": 2}, {"random": {}}):
        with pytest.raises((ValueError, TypeError, KeyError)):
            OnlineRanks.from_json(state | change)
    state = Bets(1).to_json()
    for change in ({"n": -1}, {"product": [[0.0] * len(PRIOR)]}, {"paid": [[None] * len(PRIOR)]}, {"log_size": [1.0]}):
        with pytest.raises((ValueError, TypeError)):
            Bets.from_json(state | change)


def test_evidence_of_any_size_is_a_number():
    """After a change that nobody can overlook, and back again."""
    log_e = Bets(2).update(np.concatenate([np.full((5000, 2), 1e-9), np.full((5000, 2), 0.5)]))
    assert np.isfinite(log_e).all()
    assert log_e[4999, 0] > 10_000
    assert log_e[-1, 0] < log_e[4999, 0]


def test_memory_does_not_grow_with_the_bets_of_a_call():
    p = np.random.default_rng(0).random((20_000, 20))  # its bets alone would take 58 MB
    tracemalloc.start()
    try:
        found = Bets(20).update(p)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * found.nbytes
