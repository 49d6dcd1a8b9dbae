"""The data sets the detectors are compared on: those that come with scikit-learn, and generated ones.

A task is normal rows to train on, other normal rows, and as many anomalies; which rows, or which draw of them, depends
on the seed. Most are arrays of numbers; two are tables with strings, one of them with missing values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError, needs
from nrf.seeds import derive

Floats = NDArray[np.float64]
Rows = Any
"""An array of numbers, or a pandas data frame."""

TRAIN_SHARE = 2 / 3
GENERATED_TRAIN, GENERATED_TEST = 1000, 500


@dataclass(frozen=True, eq=False)
class Task:
    """What a detector is given, and what it is tested on."""

    name: str
    train: Rows
    """Normal rows only."""
    normal: Rows
    """Normal rows that were not trained on."""
    anomalies: Rows

    @property
    def test(self) -> Rows:
        """The normal rows, then the anomalies."""
        return _stacked(self.normal, self.anomalies)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Of the test rows: 1 for an anomaly."""
        return np.repeat([0, 1], [len(self.normal), len(self.anomalies)])

    def cut(self, max_rows: int | None) -> Task:
        """The same with at most so many rows of each part."""
        parts = (part[:max_rows] for part in (self.train, self.normal, self.anomalies))
        return Task(self.name, *parts)

    def as_numbers(self) -> tuple[Floats, Floats]:
        """Training and test rows for methods that take standardised numbers only.

        Strings are one-hot, missing numbers are the median beside a column that says so; then every column gets mean 0
        and variance 1 over the training rows.
        """
        from sklearn.preprocessing import StandardScaler

        train, test = self.train, self.test
        if not isinstance(train, np.ndarray):
            numbers = _numbers_of_tables(train)
            train, test = numbers.transform(train), numbers.transform(test)
        scaler = StandardScaler().fit(train)
        return np.asarray(scaler.transform(train)), np.asarray(scaler.transform(test))


Parts = tuple[Rows, Rows, Rows]
Maker = Callable[[np.random.Generator], Parts]


def load(name: str, seed: int, max_rows: int | None = None) -> Task:
    """A data set by name.

    Args:
        name: A key of :data:`DATASETS`.
        seed: Decides on the split, and on the rows where they are generated.
        max_rows: At most so many rows of each part, for runs that only have to run.
    """
    if name not in DATASETS:
        raise InputError(f"unknown data set {name!r}; there are {', '.join(DATASETS)}")
    parts = DATASETS[name](np.random.default_rng(derive(seed, "detectors", name)))
    return Task(name, *parts).cut(max_rows)


# ------------------------------------------------------------------------------------------- what scikit-learn brings


def _split(normal: Rows, anomalies: Rows, rng: np.random.Generator) -> Parts:
    """Two thirds of the normal rows to train on, the others to test, beside at most as many anomalies."""
    order, others = rng.permutation(len(normal)), rng.permutation(len(anomalies))
    n = round(TRAIN_SHARE * len(normal))
    return normal[order[:n]], normal[order[n:]], anomalies[others[: len(normal) - n]]


def _bundled(loader: str, normal: tuple[int, ...], rng: np.random.Generator) -> Parts:
    """Some classes of a labelled data set are normal, the others are not."""
    from sklearn import datasets

    x, y = getattr(datasets, loader)(return_X_y=True)
    inside = np.isin(y, normal)
    return _split(x[inside], x[~inside], rng)


def _diabetes(rng: np.random.Generator) -> Parts:
    from sklearn.datasets import load_diabetes

    x, _ = load_diabetes(return_X_y=True)
    train, normal, _ = _split(x, x[:0], rng)
    return train, normal, _shuffled(normal, range(x.shape[1]), rng)


# ----------------------------------------------------------------------------------------------------------- generated


def _cut(rows: Rows, anomalies: Rows) -> Parts:
    return rows[:-GENERATED_TEST], rows[-GENERATED_TEST:], anomalies


def _moons(rng: np.random.Generator) -> Parts:
    from sklearn.datasets import make_moons

    x, _ = make_moons(GENERATED_TRAIN + GENERATED_TEST, noise=0.08, random_state=_legacy_seed(rng))
    return _cut(x, rng.uniform((-1.5, -1.0), (2.5, 1.5), (GENERATED_TEST, 2)))


def _swiss_roll(rng: np.random.Generator) -> Parts:
    from sklearn.datasets import make_swiss_roll

    x, _ = make_swiss_roll(GENERATED_TRAIN + GENERATED_TEST, noise=0.3, random_state=_legacy_seed(rng))
    return _cut(x, rng.uniform(x.min(0), x.max(0), (GENERATED_TEST, 3)))


def _mixture(columns: int, breadth: float, rng: np.random.Generator) -> Parts:
    """Five unit Gaussians; anomalies lie about the same centres, ``breadth`` times as far out."""
    centres = rng.normal(0, 4, (5, columns))

    def draw(n: int, scale: float) -> Floats:
        return centres[rng.integers(0, 5, n)] + scale * rng.normal(size=(n, columns))

    return _cut(draw(GENERATED_TRAIN + GENERATED_TEST, 1), draw(GENERATED_TEST, breadth))


def _correlated(rng: np.random.Generator) -> Parts:
    """Twenty columns out of five factors; anomalies have ten of them from other rows."""
    factors = rng.normal(size=(5, 20))

    def draw(n: int) -> Floats:
        rows: Floats = rng.normal(size=(n, 5)) @ factors + rng.normal(size=(n, 20))
        return rows

    changed = rng.permutation(20)[:10].tolist()
    return _cut(draw(GENERATED_TRAIN + GENERATED_TEST), _shuffled(draw(GENERATED_TEST), changed, rng))


def _small(rng: np.random.Generator) -> Parts:
    """A hundred rows: two tied columns and a skewed one. Anomalies are uniform in the range of normal rows."""
    x = rng.normal(size=400)
    rows = np.stack([x, x**2 + rng.normal(0, 0.3, 400), rng.lognormal(0, 0.5, 400)], axis=1)
    return rows[:100], rows[100:], rng.uniform(rows.min(0), rows.max(0), (300, 3))


def _categories(rng: np.random.Generator) -> Parts:
    """Eight columns of strings that depend on a hidden group. Anomalies mix groups: each column is from another row."""
    pandas = _pandas()
    sizes = (2, 3, 3, 4, 4, 5, 6, 8)
    chances = [rng.dirichlet(np.full(size, 0.3), 4) for size in sizes]

    def draw(n: int) -> Any:
        group = rng.integers(0, 4, n)
        columns = {}
        for i, chance in enumerate(chances):
            level = (rng.random((n, 1)) > chance[group].cumsum(1)[:, :-1]).sum(1)
            columns[f"column {i}"] = np.array([f"level {j}" for j in level], dtype=object)
        return pandas.DataFrame(columns)

    rows = draw(GENERATED_TRAIN + GENERATED_TEST)
    return _cut(rows, _shuffled(draw(GENERATED_TEST), range(len(sizes)), rng))


def _mixed(rng: np.random.Generator) -> Parts:
    """A table of people: numbers, strings, booleans, and holes. Anomalies have half of the columns from other rows."""
    pandas = _pandas()
    jobs = np.array(["clerk", "nurse", "engineer", "retired", "student"], dtype=object)
    typical = np.array([38.0, 42.0, 45.0, 71.0, 22.0])
    wages = np.array([2.3, 2.6, 4.2, 1.9, 0.8])
    places = np.array(["city", "suburb", "country"], dtype=object)

    def draw(n: int) -> Any:
        job = rng.integers(0, 5, n)
        age = typical[job] + rng.normal(0, 5, n)
        income = wages[job] * (age / 40) ** 0.5 * rng.lognormal(0, 0.15, n)
        place = np.clip(np.round(rng.normal((age - 20) / 25, 0.5)), 0, 2).astype(int)
        rent = income * np.array([0.45, 0.3, 0.2])[place] * rng.lognormal(0, 0.1, n)
        car = rng.random(n) < np.array([0.15, 0.75, 0.95])[place]
        table = pandas.DataFrame(
            {"job": jobs[job], "age": np.round(age), "income": income, "place": places[place], "rent": rent, "car": car}
        )
        for name in ("job", "age", "income"):
            table.loc[rng.random(n) < 0.1, name] = None
        return table

    changed = rng.permutation(6)[:3].tolist()
    return _cut(draw(GENERATED_TRAIN + GENERATED_TEST), _shuffled(draw(GENERATED_TEST), changed, rng))


DATASETS: dict[str, Maker] = {
    "digit 0": partial(_bundled, "load_digits", (0,)),
    "digit 3": partial(_bundled, "load_digits", (3,)),
    "digit 8": partial(_bundled, "load_digits", (8,)),
    "breast cancer": partial(_bundled, "load_breast_cancer", (1,)),
    "wine": partial(_bundled, "load_wine", (1,)),
    "iris": partial(_bundled, "load_iris", (0, 2)),
    "diabetes, shuffled": _diabetes,
    "two moons": _moons,
    "swiss roll": _swiss_roll,
    "mixture, 2 columns": partial(_mixture, 2, 3.0),
    "mixture, 10 columns": partial(_mixture, 10, 1.6),
    "mixture, 50 columns": partial(_mixture, 50, 1.25),
    "correlated, 20 columns": _correlated,
    "categories": _categories,
    "mixed, with holes": _mixed,
    "small table": _small,
}
"""How each is made: training rows, other normal rows, anomalies."""


# ------------------------------------------------------------------------------------------------------------- helpers


def _shuffled(rows: Rows, columns: Any, rng: np.random.Generator) -> Rows:
    """A copy with each of these columns in an order of its own, the same values against other neighbours."""
    rows = rows.copy()
    for i in columns:
        order = rng.permutation(len(rows))
        if isinstance(rows, np.ndarray):
            rows[:, i] = rows[order, i]
        else:
            rows.isetitem(i, rows.iloc[order, i].to_numpy())
    return rows


def _stacked(above: Rows, below: Rows) -> Rows:
    if isinstance(above, np.ndarray):
        return np.concatenate([above, below])
    return _pandas().concat([above, below], ignore_index=True)


def _numbers_of_tables(train: Any) -> Any:
    """The fitted step from a table to numbers."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    is_number = _pandas().api.types.is_numeric_dtype
    numbers = [name for name in train.columns if is_number(train[name])]
    text = [name for name in train.columns if name not in numbers]
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    steps = [(one_hot, text)] if text else []
    steps += [(SimpleImputer(strategy="median", add_indicator=True), numbers)] if numbers else []
    return make_column_transformer(*steps).fit(train)


def _legacy_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**31))


def _pandas() -> Any:
    with needs("reproduce", "a data set that is a data frame"):
        import pandas  # type: ignore[import-untyped]
    return pandas
