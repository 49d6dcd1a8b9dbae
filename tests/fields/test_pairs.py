"""A tree of pairs: against a slow version by its definition, and how it is stored, stacked and refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from nrf.config import from_json, to_json
from nrf.errors import InputError
from nrf.fields import PairField, PairTree
from nrf.networks import replica_state, stack
from nrf.seeds import stream

TREE = PairTree(numbers=((0, 1), (1, 3), (3, 4)), categories=((4, 9), (9, 12)))
"""A number, one with missing values, one of three values, and two categories."""


def rows_of(n=800, seed=0):
    """Rows of five columns that depend on each other, in 12 outputs."""
    draw = np.random.default_rng(seed)
    level = draw.integers(0, 5, n)
    first = level + 0.5 * draw.normal(size=n)
    missing = draw.random(n) < 0.2
    second = np.where(missing, 0.0, -first + 0.3 * draw.normal(size=n))
    third = draw.choice([-1.0, 0.0, 2.5], n, p=[0.6, 0.3, 0.1])
    other = np.where(draw.random(n) < 0.8, level % 3, draw.integers(0, 3, n))
    parts = [first[:, None], second[:, None], missing[:, None], third[:, None], 0.6 * np.eye(5)[level]]
    return torch.tensor(np.hstack([*parts, 0.6 * np.eye(3)[other]]), dtype=torch.float32)


def fitted(rows=None, config=TREE, held=200, seed=0) -> PairField:
    rows = rows_of() if rows is None else rows
    field = config.build(tuple(rows.shape[1:]))
    field.fit(rows[held:], rows[:held], stream(seed, "fit"))
    return field


class Slow:
    """The same by its definition, row by row, with no table beside the counts."""

    def __init__(self, rows, config):
        self.config, self.rows = config, rows.double().numpy()
        self.cuts = [self._cuts(span) for span in config.numbers]
        self.binned = [self.bins(row) for row in self.rows]
        n, d = len(rows), len(self.binned[0])
        mean = {}
        for i, j in itertools.combinations(range(d), 2):
            own = [self.ratio(b, i, j, left_out=1) for b in self.binned]
            mean[i, j] = sum(own) / n
        trees = [t for t in itertools.combinations(mean, d - 1) if self._joins(t, d)]
        self.tree = max(trees, key=lambda t: sum(mean[pair] for pair in t))

    def _cuts(self, span):
        values = sorted(row[span[0]] for row in self.rows if span[1] - span[0] == 1 or row[span[0] + 1] < 0.5)
        known = sorted(set(values))
        between = [(a + b) / 2 for a, b in itertools.pairwise(known)]
        if len(known) <= self.config.bins:
            return between
        n, cuts = len(values), set()
        for k in range(1, self.config.bins):
            lowest = values[math.ceil(k * n / self.config.bins) - 1]  # so many values are not above it
            cuts.add(known.index(lowest))
        return sorted(between[i] for i in cuts if i < len(between))

    @staticmethod
    def _joins(tree, d):
        there = {0}
        for _ in range(d):
            there |= {b for pair in tree for b in pair if there & set(pair)}
        return len(there) == d

    def bins(self, row):
        found = []
        for (start, stop), cuts in zip(self.config.numbers, self.cuts, strict=True):
            missing = stop - start == 2 and row[start + 1] > 0.5
            found.append(None if missing else sum(row[start] > cut for cut in cuts))
        for start, stop in self.config.categories:
            outputs = list(row[start:stop])
            found.append(outputs.index(max(outputs)) if max(outputs) > 0 else None)
        return found

    def ratio(self, b, i, j, left_out=0):
        n = len(self.binned)
        n_a, n_b = (sum(other[k] == b[k] for other in self.binned) for k in (i, j))
        if not n_a or not n_b:
            return 0.0
        n_ab = sum(other[i] == b[i] and other[j] == b[j] for other in self.binned) - left_out
        p, kappa = n_a * n_b / n**2, self.config.kappa
        return math.log((n_ab + kappa * p) / ((n - left_out + kappa) * p))

    def unlikeliness(self, row):
        b = self.bins(row)
        return -sum(self.ratio(b, i, j) for i, j in self.tree)


def test_the_field_is_that_of_its_definition():
    rows, config = rows_of(250), PairTree(TREE.numbers, TREE.categories, bins=4, kappa=7.0)
    field = fitted(rows, config, held=50)
    slow = Slow(rows, config)
    assert {tuple(sorted(pair)) for pair in field.edges.tolist()} == set(slow.tree)
    new = torch.cat([rows_of(60, seed=1), torch.zeros(1, 12)])  # of the last row no level is known
    expected = [slow.unlikeliness(row) for row in new.double().numpy()]
    np.testing.assert_allclose(field.unlikeliness(new)[0], expected, rtol=1e-5, atol=1e-5)

    before = Slow(rows[50:], config)
    t = np.array([before.unlikeliness(row) for row in rows[:50].double().numpy()])
    z = np.maximum(0, (np.array(expected) - np.quantile(t, 0.9)) / t.std())
    z = np.where(z > 3, 3 + np.log1p(np.maximum(z - 3, 0)), z)
    np.testing.assert_allclose(field(new), -z, rtol=1e-4, atol=1e-4)
    assert (z > 0).any()
    assert (z == 0).any()


def test_what_does_not_go_together_is_low_and_most_rows_are_zero():
    field, new = fitted(), rows_of(500, seed=1)
    assert 0.8 < float((field(new) == 0).float().mean()) < 0.97
    swapped = new.clone()
    swapped[:, 4:9] = swapped[torch.randperm(500, generator=stream(0, "swap")), 4:9]
    assert field(swapped).mean() < field(new).mean() - 0.5
    assert (field.gradient(new) == 0).all()


def test_ties_share_a_bin_whatever_the_quantiles_are():
    rows = rows_of(400)
    rows[:300, 0] = 1.0  # three quarters: most quantiles
    field = fitted(rows)
    cuts = field.cuts[0]
    assert (cuts[cuts < 1e29].diff() > 0).all()
    assert not (cuts == 1.0).any()
    near = rows[:1].repeat(3, 1)
    near[:, 0] += torch.tensor([-1e-6, 0.0, 1e-6])  # rounding moves no value to another bin
    assert (field._bins(near, field.cuts, field.levels)[0].diff() == 0).all()


def test_missing_values_are_a_bin_of_their_own_and_unknown_levels_say_nothing():
    field, row = fitted(), rows_of(1, seed=3)
    gone, unseen = row.clone(), row.clone()
    gone[:, 2], unseen[:, 4:9] = 1.0, 0.0
    assert field._bins(gone, field.cuts, field.levels)[1] == 0
    assert field._bins(unseen, field.cuts, field.levels)[3] == 0
    places = [pair for pair in field.tables() if 3 in pair[:2]]
    for i, j, start in places:
        size = field.config.sizes[i] * field.config.sizes[j]
        table = field.ratios[start : start + size].view(field.config.sizes[i], field.config.sizes[j])
        assert (table[0] == 0).all() if i == 3 else (table[:, 0] == 0).all()


def test_of_many_levels_the_most_frequent_have_bins():
    draw = np.random.default_rng(0)
    level = np.minimum(draw.geometric(0.2, 600) - 1, 19)
    rows = torch.tensor(np.hstack([np.eye(20)[level], level[:, None] + draw.normal(size=(600, 1))]).astype("f4"))
    field = fitted(rows, PairTree(((20, 21),), ((0, 20),), levels=5))
    assert field.levels.tolist() == [1, 2, 3, 4, 5, *[0] * 15]
    assert field.config.sizes == (17, 6)
    new = field(rows[:10])
    other = rows[:10].clone()
    other[:, 7], other[:, 8] = other[:, 8].clone(), other[:, 7].clone()
    assert torch.equal(field(other), new)


def test_codes_are_told_by_their_first_signs():
    draw = np.random.default_rng(0)
    level = draw.integers(0, 40, 2000)
    signs = draw.choice([-1.0, 1.0], (40, 16)) / 4
    codes = np.hstack([signs[level], np.zeros((2000, 2))])
    codes[:200] = [*[0.0] * 16, 1.0, 0.0]  # beside the signs
    values = np.where(np.arange(2000) < 200, 9.0, level % 7) + 0.1 * draw.normal(size=2000)
    rows = torch.tensor(np.hstack([values[:, None], codes])[draw.permutation(2000)], dtype=torch.float32)
    config = PairTree(numbers=((0, 1),), codes=((1, 17, 19),))
    assert config.sizes == (17, 2**8 + 2 + 1)
    field = fitted(rows, config)
    bins = field._bins(rows, field.cuts, field.levels)[1]
    expected = ((rows[:, 1:9] > 0) * 2 ** torch.arange(8)).sum(1) + 1
    assert torch.equal(bins, torch.where(rows[:, 17] > 0, 257, expected))
    none = torch.zeros(1, 19)
    assert field._bins(none, field.cuts, field.levels)[1] == 0
    other = rows.clone()
    other[:, 0] = other[torch.randperm(2000, generator=stream(0, "other")), 0]
    assert field(other).mean() < field(rows).mean() - 1


def test_many_rows_are_drawn_from(monkeypatch):
    monkeypatch.setattr("nrf.fields.pairs.MOST_ROWS", 500)
    rows = rows_of(3000)
    some, new = fitted(rows), rows_of(300, seed=2)
    monkeypatch.undo()
    every = fitted(rows)
    assert not torch.equal(some.ratios, every.ratios)
    assert np.corrcoef(some.unlikeliness(new)[0], every.unlikeliness(new)[0])[0, 1] > 0.9


def test_replicas_are_each_by_itself():
    alone = [fitted(rows_of(seed=seed)) for seed in range(3)]
    other = rows_of(seed=9)
    other[:, 9:] = other[torch.randperm(len(other), generator=stream(0, "other")), 9:]
    alone.append(fitted(other))
    assert len({len(one.ratios) for one in alone}) > 1  # trees of different pairs
    together, new = stack(alone), rows_of(100, seed=5)
    found = together(new.repeat(4, 1)).view(4, 100)
    for i, one in enumerate(alone):
        assert torch.equal(found[i], one(new))
        again = TREE.build((12,))
        again.load_state_dict(replica_state(together.state_dict(), i))
        assert torch.equal(again(new), one(new))


def test_a_row_scores_the_same_in_any_company():
    field, new = fitted(), rows_of(300, seed=4)
    assert torch.equal(field(new), torch.cat([field(row[None]) for row in new]))


def test_before_it_is_fitted_it_is_zero():
    assert (TREE.build((12,))(rows_of(5)) == 0).all()


def test_it_is_stored_and_read():
    field, new = fitted(), rows_of(100, seed=1)
    again = from_json(PairTree, to_json(TREE)).build((12,))
    again.load_state_dict(field.state_dict())
    assert torch.equal(again(new), field(new))
    blank = TREE.build((12,))
    blank.load_state_dict(TREE.build((12,)).state_dict())
    assert not blank.is_fitted


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("edges", lambda value: value + 5, "columns that do not exist"),
        ("edges", lambda value: value - 9, "columns that do not exist"),
        ("levels", lambda value: value + 5, "a bin that does not exist"),
        ("ratios", lambda value: value[:-1], "lacks some of its ratios"),
    ],
)
def test_what_was_damaged_is_not_read(name, change, message):
    state = fitted().state_dict()
    with pytest.raises(InputError, match=message):
        TREE.build((12,)).load_state_dict(state | {name: change(state[name])})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"numbers": ((0, 1),)}, "at least 2 columns"),
        ({"numbers": ((0, 1), (0, 2))}, "outputs of its own"),
        ({"numbers": ((0, 1), (1, 1))}, "outputs of its own"),
        ({"numbers": ((-1, 0), (1, 2))}, "outputs of its own"),
        ({"numbers": ((0, 3), (3, 4))}, "at most one flag"),
        ({"numbers": ((0, 1),), "codes": ((1, 1, 3),)}, "a code needs signs"),
        ({"numbers": ((0, 1), (1, 2)), "bins": 1}, "2 to 64 bins"),
        ({"numbers": ((0, 1), (1, 2)), "levels": 10**9}, "up to 1024 levels"),
        ({"numbers": ((0, 1), (1, 2)), "kappa": 0.0}, "kappa must be positive"),
        ({"numbers": ((0, 1), (1, 2)), "knee": 1.5}, "knee from 0 to 1"),
    ],
)
def test_settings_that_make_no_sense_are_named(settings, message):
    with pytest.raises(InputError, match=message):
        PairTree(**settings)


def test_rows_must_fit_and_be_there():
    with pytest.raises(InputError, match="beyond rows of shape"):
        TREE.build((11,))
    with pytest.raises(InputError, match="held-out rows"):
        TREE.build((12,)).fit(rows_of(10), rows_of(10)[:0], stream(0, "fit"))
