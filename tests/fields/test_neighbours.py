"""A field of neighbours: values against a search by hand, ties, rows that are anchors, gradients, replicas, storage."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nrf.errors import InputError
from nrf.fields import Neighbours, neighbours
from nrf.models import gradient
from nrf.networks import stack
from nrf.seeds import stream


def _normal(n, size=3, name="rows"):
    return torch.randn(n, size, generator=stream(0, name))


def _grid(width=7):
    """Integer places in a plane: anchors with four neighbours as far away, and eight, and so on."""
    one = torch.arange(float(width))
    return torch.cartesian_prod(one, one)


def _field(rows, **settings):
    field = Neighbours(**settings).build(tuple(rows.shape[1:]))
    field.fit(rows, stream(0, "fit"))
    return field


def _by_hand(field, rows, k, share):
    """The field as its module describes it, in double precision and one row after the other."""
    anchors = field.anchors.double().numpy()
    epsilon = float(field.epsilon)

    def search(x, *, is_anchor):
        d = np.sqrt(((anchors - x) ** 2).sum(1))
        order = np.argsort(d, kind="stable")
        if is_anchor:
            assert d[order[0]] == 0
            order = order[1:]
        return d, order[:k]

    def logs(d, places):
        return np.log(d[places] + epsilon).mean()

    own = np.array([logs(*search(a, is_anchor=True)) for a in anchors])

    def raw(x):
        d, places = search(x, is_anchor=bool((anchors == x).all(1).any()))
        last = d[places[-1]]
        level = np.isclose(d, last, rtol=0, atol=1e-6)
        theirs = np.where(np.isclose(d[places], last, rtol=0, atol=1e-6), own[level].mean(), own[places])
        return logs(d, places) - share * theirs.mean()

    among = np.array([raw(a) for a in anchors])
    found = np.array([raw(x) for x in rows.double().numpy()])
    return (among.mean() - found) / max(among.std(), neighbours.LEAST_SPREAD)


def _some(case):
    if case == "normal":
        return _normal(300), torch.cat([_normal(40, name="new"), 5 * _normal(10, name="far")])
    if case == "ties":  # between four anchors, on the side of two, on an anchor, and beyond all
        return _grid(), torch.cat([_grid(4) + 0.5, _grid(3) + torch.tensor([0.5, 0.0]), _grid(), _grid(2) - 20])
    if case == "few":
        return _normal(4), torch.cat([_normal(5, name="new"), _normal(4)])
    rows = _normal(60)
    return torch.cat([rows, rows[:10], rows[:3]]), torch.cat([rows[:20], _normal(9, name="new")])


@pytest.mark.parametrize("case", ["normal", "ties", "few", "duplicates"])
@pytest.mark.parametrize(("k", "share"), [(1, 0.0), (3, 1.0), (5, 0.4)])
def test_values_are_those_of_a_search_by_hand(case, k, share):
    rows, new = _some(case)
    field = _field(rows, k=k, share=share)
    by_hand = _by_hand(field, new, min(k, len(rows) - 1), share)
    np.testing.assert_allclose(field(new).numpy(), by_hand, rtol=2e-4, atol=2e-4)


def test_on_its_anchors_it_has_mean_0_and_deviation_1():
    rows = _normal(300)
    u = _field(rows)(rows)
    assert u.mean() == pytest.approx(0, abs=1e-4)
    assert u.std(correction=0) == pytest.approx(1, abs=1e-4)


def test_an_anchor_is_not_its_own_neighbour():
    """So training rows score as new rows of the same law do, and not as rows that lie on top of another one."""
    rows = _normal(1000)
    field = _field(rows[:500])
    known, new = field(rows[:500]), field(rows[500:])
    assert abs(float(known.mean() - new.mean())) < 0.15
    rounded = field(rows[:500].half().float() * (1 + 2**-22))  # half precision is off by more than that ...
    assert (rounded > known + 0.3).any()
    off = rows[:500] * (1 + 2**-22)  # ... but single precision is not
    torch.testing.assert_close(field(off), known, rtol=1e-4, atol=1e-4)
    beside = rows[:500] + 2 * field.epsilon
    assert (field(beside) > known + 0.3).all()
    _, distances = field.nearest(rows[:500])
    assert (distances > 0).all()
    twice = _field(torch.cat([rows[:100], rows[:1]]))
    assert len(twice.anchors) == 100  # of two that are the same, one
    assert float(twice.nearest(rows[:1])[1][0, 0]) > 0


@pytest.mark.parametrize("case", ["normal", "duplicates"])
def test_its_gradient_is_that_of_its_values(case):
    rows, new = _some(case)
    field = _field(rows).double()
    new = new[-9:].double()
    step = 1e-6 * torch.eye(3, dtype=torch.float64)
    numeric = torch.stack([(field(new + e) - field(new - e)) / 2e-6 for e in step], 1)
    value, slope = field.value_and_gradient(new)
    torch.testing.assert_close(value, field(new))
    torch.testing.assert_close(slope, numeric, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient(field, new), slope)


def test_on_top_of_an_anchor_its_gradient_is_finite():
    rows = _normal(50)
    field = _field(torch.cat([rows, rows]), k=1)
    assert torch.isfinite(field.gradient(rows)).all()


def test_far_out_it_falls_and_stays_finite():
    field = _field(_normal(200))
    u = field(torch.tensor([[5.0, 0, 0], [50, 0, 0], [1e4, 0, 0], [1e8, 0, 0], [1e15, 0, 0]]))
    assert torch.isfinite(u).all()
    assert (u.diff() < 0).all()


def test_a_row_is_scored_as_alone_whatever_its_company(monkeypatch):
    rows, new = _normal(300), torch.cat([_normal(200, name="new"), _normal(300)[:20]])
    field = _field(rows)
    whole = field(new)
    torch.testing.assert_close(torch.cat([field(row[None]) for row in new]), whole, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(neighbours, "CELLS", 7 * len(rows))
    torch.testing.assert_close(field(new), whole, rtol=1e-5, atol=1e-5)


def test_replicas_have_anchors_of_their_own():
    fields = [_field(_normal(80, name=name)) for name in ("a", "b", "c")]
    together = stack(fields)
    rows = torch.cat([_normal(20, name="new"), fields[1].anchors[:5]])
    alone = [one.value_and_gradient(rows) for one in fields]
    value, slope = together.value_and_gradient(rows.repeat(3, 1))
    torch.testing.assert_close(value, torch.cat([u for u, _ in alone]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(slope, torch.cat([g for _, g in alone]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(together(rows.repeat(3, 1)), value)
    for found, first in zip(together.nearest(rows), fields[0].nearest(rows), strict=True):
        torch.testing.assert_close(found, first)


def test_it_is_stored_with_its_anchors():
    field, new = _field(_normal(90)), _normal(10, name="new")
    again = Neighbours().build((3,))
    again.load_state_dict(field.state_dict())
    assert torch.equal(again(new), field(new))
    together, blank = stack([field, field]), stack([Neighbours().build((3,)), Neighbours().build((3,))])
    blank.load_state_dict(together.state_dict())
    assert torch.equal(blank(new.repeat(2, 1)), together(new.repeat(2, 1)))


def test_anchors_are_drawn_from_many_rows():
    rows = _normal(400)
    field = _field(rows, max_anchors=100)
    assert field.anchors.shape == (100, 3)
    drawn = {tuple(row) for row in field.anchors.tolist()}
    assert len(drawn) == 100
    assert drawn <= {tuple(row) for row in rows.tolist()}
    assert drawn != {tuple(row) for row in rows[:100].tolist()}


def test_rows_of_any_shape():
    rows = _normal(50, 4)
    field = _field(rows.view(50, 2, 2))
    torch.testing.assert_close(field(rows.view(50, 2, 2)), _field(rows)(rows))
    assert field.gradient(rows.view(50, 2, 2)).shape == (50, 2, 2)


def test_rows_that_are_all_the_same_say_nothing_but_nothing_breaks():
    field = _field(torch.ones(10, 2))
    u = field(torch.tensor([[1.0, 1.0], [1.5, 1.0]]))
    assert torch.isfinite(u).all()
    assert u[1] < u[0]


@pytest.mark.parametrize(
    ("settings", "message"), [({"k": 0}, "k ≥ 1"), ({"max_anchors": 1}, "≥ 2"), ({"share": 2}, "0 to 1")]
)
def test_settings_that_are_none(settings, message):
    with pytest.raises(InputError, match=message):
        Neighbours(**settings)


def test_one_row_has_no_neighbours():
    with pytest.raises(InputError, match="at least 2 rows, got 1"):
        _field(_normal(1))
