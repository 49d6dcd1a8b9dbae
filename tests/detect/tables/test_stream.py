"""Files of tables: read whole for training, scored batch by batch, written whole or not at all."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import os
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nrf.detect import NRFDetector, SchemaError, false_discoveries
from nrf.detect.tables import files
from nrf.detect.tables import readers as readers_module
from nrf.detect.tables.files import batches, column_names
from nrf.detect.tables.stream import _Tally, read_table, score_stream
from nrf.detect.tables.texts import label_is
from nrf.errors import InputError

pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")
parquet = pytest.importorskip("pyarrow.parquet")

N = 157
DAY = dt.datetime(2024, 3, 1)


def table(n: int = N, seed: int = 0):
    """Every kind of column, with missing values in two of them."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    cities = [None if i % 11 == 3 else ("Oslo" if v > 0 else "Rome, old") for i, v in enumerate(z)]
    return pa.table(
        {
            "amount": pa.array(np.exp(z)),
            "count": pa.array(rng.integers(0, 50, n)),
            "balance": pa.array([None if i % 7 == 2 else float(v) for i, v in enumerate(3 * z)]),
            "city": pa.array(cities),
            "member": pa.array(rng.random(n) < 0.5),
            "when": pa.array([DAY + dt.timedelta(hours=int(h)) for h in rng.integers(0, 30, n)], pa.timestamp("us")),
        }
    )


@pytest.fixture(scope="module")
def detector():
    return NRFDetector(max_iter=30, random_state=0).fit(table(300, seed=1))


@pytest.fixture(scope="module")
def numeric():
    """Fitted on an array: its columns have no names."""
    return NRFDetector(max_iter=30, random_state=0).fit(np.random.default_rng(0).normal(size=(80, 2)))


@pytest.fixture
def small_blocks(monkeypatch):
    """CSV files are parsed in blocks of some lines."""
    monkeypatch.setattr(readers_module, "SMALLEST_BLOCK", 400)
    monkeypatch.setattr(readers_module, "LARGEST_BLOCK", 400)


def write(data, path):
    if path.suffix == ".parquet":
        parquet.write_table(data, path, row_group_size=50)
        return path
    buffer = io.BytesIO()
    csv.write_csv(data, buffer)
    path.write_bytes(gzip.compress(buffer.getvalue()) if path.suffix == ".gz" else buffer.getvalue())
    return path


def text(path, content: str | bytes):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path):
    return (parquet.read_table(path) if path.suffix == ".parquet" else csv.read_csv(path)).to_pydict()


# ------------------------------------------------------------------------------------------------------------- scoring


@pytest.mark.parametrize("batch_rows", [33, 50, N, 65_536])
@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.parquet", "X.CSV"])
def test_scores_are_those_of_the_table_in_memory(detector, tmp_path, name, batch_rows):
    data = table()
    source = write(data, tmp_path / name)
    out = tmp_path / "scores.parquet"
    summary = score_stream(detector, source, out, batch_rows=batch_rows)
    got, want = read(out), detector.score_samples(data)
    assert list(got) == ["row", "score", "p_value", "anomaly"]
    assert got["row"] == list(range(1, N + 1))
    np.testing.assert_allclose(got["score"], want, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(got["p_value"], detector.calibration_.p_values(np.array(got["score"])))
    np.testing.assert_array_equal(got["anomaly"], (np.array(got["score"]) < detector.offset_).astype(int))
    assert (summary.rows, summary.anomalies, summary.p_cutoff) == (N, sum(got["anomaly"]), None)
    assert (summary.lowest, summary.highest) == (min(got["score"]), max(got["score"]))


def test_batches_of_one_row(detector, tmp_path):
    source = write(table(5), tmp_path / "x.csv")
    assert score_stream(detector, source, tmp_path / "s.csv", batch_rows=1).rows == 5
    want = detector.score_samples(table(5))
    np.testing.assert_allclose(read(tmp_path / "s.csv")["score"], want, rtol=1e-4, atol=1e-5)


def test_batches_of_wide_files_have_fewer_rows(detector, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BATCH_VALUES", 1500 * len(table(1).column_names))
    parquet.write_table(table(4000), tmp_path / "x.parquet")
    sizes = [batch.table.num_rows for batch in batches(detector.encoder_, tmp_path / "x.parquet")]
    assert sizes == [1500, 1500, 1000]


def test_csv_and_parquet_outputs_hold_the_same(detector, tmp_path):
    source = write(table(), tmp_path / "x.csv")
    for name in ("s.csv", "s.parquet"):
        score_stream(detector, source, tmp_path / "deep" / "er" / name)
    assert read(tmp_path / "deep" / "er" / "s.csv") == read(tmp_path / "deep" / "er" / "s.parquet")
    first, second = (tmp_path / "deep" / "er" / "s.csv").read_text().splitlines()[:2]
    assert first == "row,score,p_value,anomaly"
    assert second.startswith("1,")


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("name", ["s.csv", "s.parquet"])
def test_false_discoveries_are_those_of_the_whole_file(detector, tmp_path, rate, name):
    data = table(seed=3)
    odd = data.set_column(0, "amount", pa.array(np.where(np.arange(N) % 3 == 0, 1e6, 1.0)))
    source, out = write(odd, tmp_path / "x.csv"), tmp_path / name
    summary = score_stream(detector, source, out, fdr=rate, batch_rows=25)
    got = read(out)
    assert got["row"] == list(range(1, N + 1))
    flagged = false_discoveries(np.array(got["p_value"]), rate)
    np.testing.assert_array_equal(np.array(got["anomaly"]) == 1, flagged)
    assert summary.anomalies == flagged.sum()
    assert summary.p_cutoff == (max(np.array(got["p_value"])[flagged]) if flagged.any() else 0)


@given(st.integers(1, 60), st.lists(st.integers(0, 60), min_size=1, max_size=80), st.floats(0.001, 0.999))
def test_counts_are_enough_for_benjamini_hochberg(n, places, rate):
    p = (np.minimum(places, n) + 1) / (n + 1)
    tally = _Tally(n)
    for part in np.array_split(p, 3):
        if len(part):
            tally.add(part, part)
    assert tally.rows == len(p)
    np.testing.assert_array_equal(p <= tally.cutoff(rate), false_discoveries(p, rate))


def test_columns_may_stand_in_any_order_and_dropped_ones_are_passed_over(detector, tmp_path):
    data = table()
    extra = data.append_column("label", pa.array(["x"] * N)).append_column("a.b", pa.array([1] * N))
    mixed = extra.select(["label", "when", "city", "a.b", "member", "balance", "count", "amount"])
    for name in ("x.csv", "x.parquet"):
        out = tmp_path / "s.parquet"
        score_stream(detector, write(mixed, tmp_path / name), out, drop=["label", "a.b"])
        np.testing.assert_allclose(read(out)["score"], detector.score_samples(data), rtol=1e-4, atol=1e-5)


def test_dots_and_spaces_in_names(tmp_path):
    data = pa.table({"a.b": [1.0, 2.0, 4.0] * 5, "a b": ["x", "y", "x"] * 5, "größe": [0.5, 1.5, 9.0] * 5})
    fitted = NRFDetector(max_iter=5, random_state=0).fit(data)
    for name in ("x.csv", "x.parquet"):
        assert score_stream(fitted, write(data, tmp_path / name), tmp_path / "s.csv").rows == 15


def test_columns_left_out_at_fit_are_not_needed_and_not_read(tmp_path):
    data = table(60)
    constant = data.append_column("site", pa.array(["a"] * 60)).append_column("none", pa.nulls(60))
    with pytest.warns(UserWarning, match="left out"):
        fitted = NRFDetector(max_iter=5, random_state=0).fit(constant)
    junk = data.append_column("site", pa.array(range(60)))
    for i, given_ in enumerate((data, constant, junk)):
        for name in ("x.csv", "x.parquet"):
            score_stream(fitted, write(given_, tmp_path / name), tmp_path / f"{i}{name}.parquet")
    assert len({tuple(read(path)["score"]) for path in tmp_path.glob("[0-9]*.parquet")}) == 1


def test_a_number_that_was_constant_at_fit_counts_where_it_is(tmp_path):
    """As it does in memory: where it is not, or the same, nothing happens; another one is a surprise."""
    data = table(60)
    with pytest.warns(UserWarning, match="left out"):
        fitted = NRFDetector(max_iter=5, random_state=0).fit(data.append_column("unit", pa.array([7.0] * 60)))
    assert fitted.encoder_.columns[-1].value == 7

    def surprises(name: str, values) -> list[bool]:
        given_ = data if values is None else data.append_column("unit", pa.array(values))
        (batch,) = batches(fitted.encoder_, write(given_, tmp_path / name))
        return (fitted.encoder_.encode(batch.table)[:, -1] > 0).tolist()

    for name in ("x.csv", "x.parquet"):
        assert surprises(name, None) == [0] * 60
        assert surprises(name, [7] * 60) == [0] * 60
        assert surprises(name, [7, 8, None] * 20) == [0, 1, 1] * 20
        assert surprises(name, ["seven"] * 60) == [1] * 60
    assert surprises("x.csv", ["7", "seven"] * 30) == [0, 1] * 30


def test_a_detector_fitted_on_an_array_goes_by_place(numeric, tmp_path):
    x = np.random.default_rng(1).normal(size=(20, 2))
    source = write(pa.table({"p": x[:, 0], "q": x[:, 1], "y": ["no"] * 20}), tmp_path / "x.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        score_stream(numeric, source, tmp_path / "s.csv", drop=["y"])
    np.testing.assert_allclose(read(tmp_path / "s.csv")["score"], numeric.score_samples(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(SchemaError, match=r"has 3 columns, the detector was fitted on 2; .*--drop"):
        score_stream(numeric, source, tmp_path / "s.csv")


def test_types_do_not_hang_on_the_first_block(tmp_path, detector, small_blocks):
    """Whole numbers first, then fractions; nothing first, then values; levels that look like numbers first."""
    n = 200
    rows = [
        f"{'1' if i < 100 else '1.5'},{i % 50},{'' if i < 100 else '2.25'},{i if i < 100 else 'Oslo'},"
        for i in range(n)
    ]
    days = ["2024-03-01" if i < 100 else "2024-03-01 10:00:00.125" for i in range(n)]
    lines = [f"{r}{'' if i < 100 else 'true'},{d}" for i, (r, d) in enumerate(zip(rows, days, strict=True))]
    source = text(tmp_path / "x.csv", "amount,count,balance,city,member,when\n" + "\n".join(lines) + "\n")
    assert score_stream(detector, source, tmp_path / "s.csv", batch_rows=30).rows == n
    got = read(tmp_path / "s.csv")["score"]
    want = detector.score_samples(
        pa.table(
            {
                "amount": [1.0 if i < 100 else 1.5 for i in range(n)],
                "count": [i % 50 for i in range(n)],
                "balance": [None if i < 100 else 2.25 for i in range(n)],
                "city": [str(i) if i < 100 else "Oslo" for i in range(n)],
                "member": [None if i < 100 else True for i in range(n)],
                "when": [DAY if i < 100 else DAY + dt.timedelta(hours=10, milliseconds=125) for i in range(n)],
            }
        )
    )
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_memory_does_not_grow_with_the_file(detector, tmp_path, monkeypatch):
    monkeypatch.setattr(readers_module, "SMALLEST_BLOCK", 1 << 13)  # Arrow reads up to 32 blocks ahead
    part = table(2000)
    for name in ("x.csv", "x.parquet"):
        source = write(pa.concat_tables([part] * 40), tmp_path / name)
        before, peak, rows = pa.total_allocated_bytes(), 0, 0
        for batch in batches(detector.encoder_, source, batch_rows=1000):
            peak = max(peak, pa.total_allocated_bytes() - before)
            rows += batch.table.num_rows
        assert rows == 80_000
        assert peak < 700_000, name  # the table has 3.4 MB


def test_progress_is_reported(detector, tmp_path):
    for name in ("x.csv", "x.csv.gz", "x.parquet"):
        calls = []
        source = write(table(), tmp_path / name)
        score_stream(detector, source, tmp_path / "s.csv", batch_rows=40, on_batch=lambda *c, to=calls: to.append(c))
        assert [rows for rows, _ in calls] == [40, 80, 120, N]
        shares = [share for _, share in calls]
        assert shares == sorted(shares)
        assert shares[-1] == 1


# ----------------------------------------------------------------------------------------------------- values of a file


@pytest.mark.parametrize("blank", ["", "NA", "NaN", "null", "n/a", '""'])
def test_missing_values_of_a_csv_file(detector, tmp_path, blank):
    source = text(tmp_path / "x.csv", f"amount,count,balance,city,member,when\n1,2,{blank},{blank},{blank},{blank}\n")
    (batch,) = batches(detector.encoder_, source)
    row = batch.table.to_pylist()[0]
    assert [name for name, value in row.items() if value is None] == ["balance", "city", "member", "when"]
    read_back = read_table(source).to_pylist()[0]
    assert [name for name, value in read_back.items() if value is None] == ["balance", "city", "member", "when"]


def test_spaces_around_numbers_and_lines_without_content(detector, tmp_path):
    line = " 1 ,2.0, 3e0 ,Oslo , TRUE , 2024-03-01 "
    source = text(tmp_path / "x.csv", f"\n\namount,count,balance,city,member,when\n\n{line}\n\n,,   ,,,\n")
    (batch,) = batches(detector.encoder_, source)
    one, two = batch.table.to_pylist()
    assert one == {"amount": 1, "count": 2, "balance": 3, "city": "Oslo ", "member": True, "when": DAY}
    assert set(two.values()) == {None}


def test_zones_nanoseconds_and_far_dates(tmp_path):
    fitted = NRFDetector(max_iter=5, random_state=0).fit(table(60).select(["when", "amount"]))
    wanted = {
        "2024-03-01T02:00:00+02:00": DAY.replace(tzinfo=dt.UTC),
        "2024-03-01T00:00:00Z": DAY.replace(tzinfo=dt.UTC),
        "9999-12-31": dt.datetime(9999, 12, 31),
        "2024-03-01 00:00": DAY,
    }
    for given_, want in wanted.items():
        (batch,) = batches(fitted.encoder_, text(tmp_path / "x.csv", f"when,amount\n{given_},1\n"))
        assert batch.table["when"][0].as_py() == want
    (batch,) = batches(fitted.encoder_, text(tmp_path / "x.csv", "when,amount\n2024-03-01 00:00:00.123456789,1\n"))
    assert batch.table["when"][0].value % 10**9 == 123456789


def test_times_of_day_are_numbers_at_fit_and_at_scoring(tmp_path):
    lines = [f"{h:02}:{7 * h % 60:02}:00,{h % 5}.5" for h in range(24)]
    source = text(tmp_path / "x.csv", "at,x\n" + "\n".join(lines) + "\n")
    fitted = NRFDetector(max_iter=5, random_state=0).fit(read_table(source))
    assert fitted.encoder_.columns[0].kind == "numeric"
    score_stream(fitted, source, tmp_path / "s.csv")
    np.testing.assert_allclose(
        read(tmp_path / "s.csv")["score"], fitted.score_samples(read_table(source)), rtol=1e-4, atol=1e-5
    )
    (batch,) = batches(fitted.encoder_, text(tmp_path / "x.csv", "at,x\n01:00,1\n,2\n"))
    assert batch.table["at"].to_pylist() == [3600, None]


def test_levels_may_hold_commas_quotes_and_line_breaks(tmp_path):
    levels = ["a,b", 'say "x"', "two\nlines", "plain"] * 10
    data = pa.table({"level": levels, "x": [float(i % 9) for i in range(40)]})
    fitted = NRFDetector(max_iter=5, random_state=0).fit(data)
    source = write(data, tmp_path / "x.csv")
    assert [b.table["level"].to_pylist() for b in batches(fitted.encoder_, source)] == [levels]
    assert read_table(source)["level"].to_pylist() == levels


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    source = text(tmp_path / "x.csv", "\ufeffa,b\n1,2\n")
    assert column_names(source) == ["a", "b"]
    assert read_table(source).column_names == ["a", "b"]


def test_read_table(tmp_path):
    data = table()
    for name in ("x.csv", "x.csv.gz", "x.parquet"):
        found = read_table(write(data, tmp_path / name), drop=["count"])
        assert found.column_names == [c for c in data.column_names if c != "count"]
        assert found["city"].to_pylist() == data["city"].to_pylist()
        assert found["balance"].to_pylist() == data["balance"].to_pylist()
    kinds = {f.name: str(f.type).split("[")[0] for f in read_table(tmp_path / "x.csv").schema}
    assert kinds == {
        "amount": "double",
        "count": "int64",
        "balance": "double",
        "city": "string",
        "member": "bool",
        "when": "timestamp",
    }


@pytest.mark.parametrize(
    ("values", "read_as"),
    [
        (["00123", "99999", "NA", " 7"], ["00123", "99999", None, " 7"]),
        (["99999", "99999", "99999", "007"], ["99999", "99999", "99999", "007"]),
        (["00000000000000000000000123", "1", "2", "3"], ["00000000000000000000000123", "1", "2", "3"]),
        (["0", "1", "10", ""], [0, 1, 10, None]),
        (["0.5", "0", "1", "2"], [0.5, 0, 1, 2]),
        (["05.2", "10.1", "0", "1"], [5.2, 10.1, 0, 1]),  # a number of fixed width
        (["-05", "05", "0", "1"], [-5, 5, 0, 1]),
        (["2024-03-01", "2024-03-02", "", ""], [dt.date(2024, 3, 1), dt.date(2024, 3, 2), None, None]),
        (["true", "false", "true", ""], [True, False, True, None]),
    ],
)
def test_digits_with_leading_zeros_are_codes(tmp_path, small_blocks, values, read_as):
    rows = [*values[1:] * 30, values[0]]  # several blocks; what counts comes last
    source = text(tmp_path / "x.csv", "v,x\n" + "".join(f"{v},0.5\n" for v in rows))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = read_table(source)["v"].to_pylist()
    assert found == [*read_as[1:] * 30, read_as[0]]
    is_code = any(isinstance(v, str) for v in read_as)
    assert len(caught) == is_code
    assert all("leading zeros are codes" in str(w.message) and str(w.message).endswith("'v'") for w in caught)


def test_strings_on_demand(tmp_path):
    source = text(tmp_path / "x.csv", "a,b\n1.0,2\n,3\n")
    assert read_table(source, strings=["a"]).to_pydict() == {"a": ["1.0", None], "b": [2, 3]}
    with pytest.raises(InputError, match="has no column 'c'"):
        read_table(source, strings=["c"])
    assert read_table(source, drop=["a"], strings=["a"]).column_names == ["b"]


def test_labels_are_read_as_text(tmp_path):
    data = pa.table({"x": [1.0, 2.0, 3.0], "y": [0, 1, 1], "flag": [True, False, None]})
    for name in ("x.csv", "x.parquet"):
        source = write(data, tmp_path / name)
        assert label_is(read_table(source, label="y")["y"], "1").tolist() == [False, True, True]
        assert label_is(read_table(source, label="y")["y"], "1.0").tolist() == [False, True, True]
        assert label_is(read_table(source, label="flag")["flag"], "True").tolist() == [True, False, False]
        assert label_is(read_table(source, label="x")["x"], "2").tolist() == [False, True, False]
        assert read_table(source, drop=["x", "y"], label="y").column_names == ["flag", "y"]
    assert label_is(pa.array(["01", "1"]), "1").tolist() == [False, True]  # the very text comes first
    assert label_is(pa.array(["a", "A"]), "A").tolist() == [False, True]


# ------------------------------------------------------------------------------------------------------------ mistakes


HEADER = "amount,count,balance,city,member,when\n"
ROW = "1,2,3,Oslo,true,2024-03-01\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("abc,2,3,Oslo,true,2024-03-01", r"column 'amount', row 141: 'abc' is no number"),
        ("1,2,3_0,Oslo,true,2024-03-01", r"column 'balance', row 141: '3_0' is no number"),
        ("1,2,3,Oslo,perhaps,2024-03-01", r"column 'member', row 141: 'perhaps' is neither true nor false"),
        ("1,2,3,Oslo,true,01/03/2024", r"column 'when', row 141: '01/03/2024' is no ISO date or time"),
        ("1,2,inf,Oslo,true,2024-03-01", r"rows 121 to 150: .*\n.*'balance' has 1 infinite value"),
        ("1,2,3,Oslo,true", r"row 141 has 5 values, the header has 6"),
        ("1,2,3,Oslo,true,2024-03-01,7", r"row 141 has 7 values, the header has 6"),
        (b"1,2,3,Osl\xf8,true,2024-03-01", r"column 'city', row 141 is not UTF-8"),
    ],
)
def test_a_wrong_value_is_named_with_column_and_row(detector, tmp_path, small_blocks, line, message):
    line = line if isinstance(line, bytes) else line.encode()
    source = text(tmp_path / "x.csv", (HEADER + ROW * 140).encode() + line + b"\n" + (ROW * 30).encode())
    with pytest.raises(InputError, match=message) as caught:
        score_stream(detector, source, tmp_path / "s.csv", batch_rows=30)
    assert "x.csv" in str(caught.value) or "rows 121" in str(caught.value)
    assert not (tmp_path / "s.csv").exists()


def test_the_row_is_right_when_other_columns_are_not_read(detector, tmp_path):
    source = text(tmp_path / "x.csv", b"skip,city,when,member,balance,count,amount\n" + b"a,Osl\xf8,,,,,\n")
    with pytest.raises(InputError, match="column 'city', row 1 is not UTF-8"):
        score_stream(detector, source, tmp_path / "s.csv", drop=["skip"])


def test_an_error_leaves_the_old_output_and_nothing_else(detector, tmp_path):
    source = text(tmp_path / "x.csv", HEADER + ROW * 50 + "x,,,,,\n")
    (tmp_path / "s.csv").write_text("old")
    for fdr in (None, 0.1):
        with pytest.raises(InputError, match="row 51"):
            score_stream(detector, source, tmp_path / "s.csv", batch_rows=10, fdr=fdr)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s.csv", "x.csv"]
    assert (tmp_path / "s.csv").read_text() == "old"


def test_a_stop_leaves_nothing_behind(detector, tmp_path):
    def stop(rows, share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_stream(detector, write(table(), tmp_path / "x.csv"), tmp_path / "s.csv", on_batch=stop, batch_rows=20)
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]


def test_a_stop_in_the_moment_the_file_is_made(detector, tmp_path, monkeypatch):
    source, real = write(table(), tmp_path / "x.csv"), os.open

    def stopped(path, flags, *rest, **more):
        handle = real(path, flags, *rest, **more)
        if ".partial-nrf-" in str(path) and flags & os.O_CREAT:
            os.close(handle)
            raise KeyboardInterrupt
        return handle

    monkeypatch.setattr(os, "open", stopped)
    with pytest.raises(KeyboardInterrupt):
        score_stream(detector, source, tmp_path / "s.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["x.csv"]


def test_partial_files_have_names_that_nobody_can_foresee(detector, tmp_path):
    """A link with the name of the partial file was followed, and what it pointed to overwritten."""
    source, victim = write(table(), tmp_path / "x.csv"), text(tmp_path / "victim", "precious")
    (tmp_path / f".partial-{os.getpid()}-s.csv").symlink_to(victim)
    names = set()

    def look(rows, share):
        names.update(p.name for p in tmp_path.glob(".partial-nrf-*"))

    for _ in range(2):
        score_stream(detector, source, tmp_path / "s.csv", on_batch=look)
    assert victim.read_text() == "precious"
    assert len(names) == 2


def test_a_link_is_replaced_and_what_it_points_to_is_not(detector, tmp_path):
    source, victim = write(table(), tmp_path / "x.csv"), text(tmp_path / "victim.csv", "precious")
    for out, target in (("s.csv", victim), ("t.csv", tmp_path / "nowhere.csv")):
        (tmp_path / out).symlink_to(target)
        score_stream(detector, source, tmp_path / out)
        assert not (tmp_path / out).is_symlink()
        assert len(read(tmp_path / out)["score"]) == N
    assert victim.read_text() == "precious"
    assert not (tmp_path / "nowhere.csv").exists()


def test_what_a_killed_process_left_goes_at_the_next_start(detector, tmp_path):
    import fcntl

    source = write(table(), tmp_path / "x.csv")
    names = (".partial-nrf-dead.csv", ".partial-nrf-alive.csv", ".partial-nrf-young.csv", ".partial-other", "notes.csv")
    for name in names:
        text(tmp_path / name, "x")
        if "young" not in name:
            os.utime(tmp_path / name, (1e9, 1e9))
    with (tmp_path / names[1]).open() as held:  # as the process that writes it does
        fcntl.flock(held, fcntl.LOCK_EX)
        score_stream(detector, source, tmp_path / "s.csv")
    assert {p.name for p in tmp_path.iterdir()} == {*names[1:], "x.csv", "s.csv"}


def test_reading_may_end_early(detector, tmp_path, small_blocks):
    for name in ("x.csv", "x.csv.gz", "x.parquet"):
        parts = batches(detector.encoder_, write(table(), tmp_path / name), batch_rows=5)
        assert next(parts).last == 5
        parts.close()


def test_missing_and_extra_columns(detector, tmp_path):
    data = table()
    source = write(data.drop_columns(["count", "city"]), tmp_path / "x.csv")
    with pytest.raises(SchemaError, match="columns missing: 'count', 'city'; add them, or fit again without"):
        score_stream(detector, source, tmp_path / "s.csv")
    source = write(data.append_column("y", pa.array([1] * N)), tmp_path / "x.parquet")
    with pytest.raises(SchemaError, match="not there at fit: 'y'; leave them out with --drop"):
        score_stream(detector, source, tmp_path / "s.csv")
    with pytest.raises(SchemaError, match="columns missing: 'city'"):
        score_stream(detector, source, tmp_path / "s.csv", drop=["y", "city"])
    with pytest.raises(InputError, match="has no column 'z'; its columns are 'amount', 'count'"):
        score_stream(detector, source, tmp_path / "s.csv", drop=["z"])
    with pytest.raises(InputError, match="label 'city' as a feature"):
        batches(detector.encoder_, source, drop=["y"], label="city")
    with pytest.raises(InputError, match="has no column 'Cty'; did you mean 'city'"):
        score_stream(detector, source, tmp_path / "s.csv", drop=["Cty"])
    renamed = data.rename_columns([{"count": "Count", "city": "citiy"}.get(name, name) for name in data.column_names])
    with pytest.raises(SchemaError, match="if they are the same, rename 'Count' to 'count', 'citiy' to 'city'"):
        score_stream(detector, write(renamed, tmp_path / "r.csv"), tmp_path / "s.csv")
    many = pa.table({f"c{i}": [1] for i in range(12)})
    with pytest.raises(SchemaError, match="and 4 more"):
        score_stream(detector, write(many, tmp_path / "m.csv"), tmp_path / "s.csv")


def test_a_parquet_file_of_another_type(detector, tmp_path):
    data = table().set_column(0, "amount", pa.array(["a"] * N))
    with pytest.raises(SchemaError, match=r"rows 1 to 100: (.|\n)*'amount' had numbers at fit, now it has strings"):
        score_stream(detector, write(data, tmp_path / "x.parquet"), tmp_path / "s.csv", batch_rows=100)


BROKEN = {
    "empty": ("x.csv", b"", "is empty"),
    "blank lines only": ("x.csv", b"\n\n", "is empty"),
    "header only": ("x.csv", HEADER.encode(), "has a header, but no rows"),
    "header without end": ("x.csv", HEADER.strip().encode(), "has a header, but no rows"),
    "header not utf-8": ("x.csv", b"am\xf8unt\n1\n", "the header is not UTF-8"),
    "utf-16": ("x.csv", (HEADER + ROW).encode("utf-16"), "the header is not UTF-8"),
    "separators": ("x.csv", b"a;b|c\n1,2\n", "it is not clear what separates the columns"),
    "no header": ("x.csv", b"1.5,2\n3.5,4\n", "holds numbers, not names"),
    "names twice": ("x.csv", b"a,b,a\n1,2,3\n", "used more than once: 'a'"),
    "open quote": ("x.csv", (HEADER + ROW * 3 + '1,2,3,"Oslo,true,\n' + ROW).encode(), r"row 4 has \d|never closed"),
    "open quote at the end": ("x.csv", b'amount,city\n1,Oslo\n2,"Rome\n3,Oslo\n', "opened and never closed"),
    "gzip that is none": ("x.csv.gz", b"amount,count\n1,2\n", "cannot be read"),
    "gzip cut off": ("x.csv.gz", gzip.compress((HEADER + ROW * 999).encode())[:60], "cannot be read"),
    "empty parquet": ("x.parquet", b"", "is empty"),
    "text as parquet": ("x.parquet", (HEADER + ROW).encode(), "no Parquet file"),
    "excel": ("x.xlsx", b"PK", "must end in .csv or .csv.gz or .parquet"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files(tmp_path, case):
    name, content, message = BROKEN[case]
    source = text(tmp_path / name, content)
    fitted = NRFDetector(max_iter=5, random_state=0)
    with pytest.raises(InputError, match=message) as caught:
        read_table(source)
    assert name in str(caught.value)
    if "amount,city" in content.decode("latin-1"):
        fitted.fit(table(60).select(["amount", "city"]))
    else:
        fitted.fit(table(60))
    with pytest.raises(InputError, match=message):
        score_stream(fitted, source, tmp_path / "s.csv")
    assert not (tmp_path / "s.csv").exists()


def test_an_open_quote_is_noticed_in_a_long_file(detector, tmp_path, small_blocks):
    source = text(tmp_path / "x.csv", HEADER + ROW * 20 + '1,2,3,"Oslo,true,2024-03-01\n' + ROW * 100)
    with pytest.raises(InputError, match="a quote opened and never closed"):
        score_stream(detector, source, tmp_path / "s.csv")


def test_a_lone_quote_inside_a_value_is_no_open_quote(tmp_path):
    data = text(tmp_path / "x.csv", "pipe,x\n" + '5" steel,1\n' * 3 + "copper,2\n" * 4)
    fitted = NRFDetector(max_iter=5, random_state=0).fit(read_table(data))
    assert score_stream(fitted, data, tmp_path / "s.csv").rows == 7


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_truncated_parquet_file(detector, tmp_path, share):
    source = write(table(), tmp_path / "x.parquet")
    content = source.read_bytes()
    source.write_bytes(content[: int(share * len(content))])
    for call in (lambda: read_table(source), lambda: score_stream(detector, source, tmp_path / "s.csv")):
        with pytest.raises(InputError, match=r"x\.parquet: truncated, damaged or no Parquet file"):
            call()


def test_a_damaged_parquet_file(detector, tmp_path):
    source = write(table(), tmp_path / "x.parquet")
    content = bytearray(source.read_bytes())
    content[10:400] = b"\xff" * 390
    source.write_bytes(bytes(content))
    for call in (lambda: read_table(source), lambda: score_stream(detector, source, tmp_path / "s.csv")):
        with pytest.raises(InputError, match="damaged"):
            call()
    assert not (tmp_path / "s.csv").exists()


def test_places_that_cannot_be(detector, tmp_path):
    source = write(table(), tmp_path / "x.csv")
    link = tmp_path / "link.csv"
    link.symlink_to(source)
    (tmp_path / "file").write_text("")
    cases = [
        (source, "file/s.csv", "cannot be written: .*file is not a folder"),
        (tmp_path / "nothing.csv", "s.csv", r"nothing\.csv: does not exist"),
        (tmp_path, "s.csv", "must end in"),
        (source, "s.txt", r"s\.txt: the name must end in \.csv or \.parquet"),
        (source, "s.csv.gz", "must end in"),
        (source, "x.csv", "is the input"),
        (link, "x.csv", "is the input"),
        (source, "link.csv", "is the input"),
    ]
    (tmp_path / "folder.csv").mkdir()
    cases += [(tmp_path / "folder.csv", "s.csv", "is a directory"), (source, "folder.csv", "is a folder")]
    before = source.read_bytes()
    for given_, out, message in cases:
        with pytest.raises(InputError, match=message):
            score_stream(detector, given_, tmp_path / out)
    assert source.read_bytes() == before
    with pytest.raises(InputError, match="does not exist"):
        score_stream(detector, tmp_path / "nothing.csv", tmp_path / "new" / "s.csv")
    assert not (tmp_path / "new").exists()


def test_options_that_cannot_be(detector, tmp_path):
    source = write(table(), tmp_path / "x.csv")
    for rate in (0, 1, -1, float("nan")):
        with pytest.raises(InputError, match="between 0 and 1"):
            score_stream(detector, source, tmp_path / "s.csv", fdr=rate)
    with pytest.raises(InputError, match="batch_rows"):
        score_stream(detector, source, tmp_path / "s.csv", batch_rows=0)
    with pytest.raises(InputError, match="no column is left"):
        read_table(source, drop=column_names(source))
    with pytest.raises(InputError, match="has no column 'y'"):
        read_table(source, label="y")


def test_detectors_that_do_not_score_files(tmp_path):
    source = write(table(), tmp_path / "x.csv")
    with pytest.raises(ValueError, match="not fitted"):
        score_stream(NRFDetector(), source, tmp_path / "s.csv")
    images = NRFDetector(max_iter=2, random_state=0).fit(np.random.default_rng(0).random((30, 1, 5, 5)))
    with pytest.raises(InputError, match="is for images"):
        score_stream(images, source, tmp_path / "s.csv")


def test_without_pyarrow_it_is_said(tmp_path, monkeypatch):
    source = text(tmp_path / "x.csv", "a,b\n1,2\n")

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"install it with `pip install \"nrf\[tables\]\""):
        read_table(source)


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["x.csv", "x.csv.gz", "x.parquet"]))
def test_any_bytes_are_a_table_or_an_input_error(tmp_path_factory, content, name):
    source = text(tmp_path_factory.getbasetemp() / f"{os.getpid()}-{name}", content)
    try:
        assert read_table(source).num_rows > 0
    except InputError as error:
        assert name in str(error)  # noqa: PT017


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet='ab1.,"\n \r-', max_size=60))
def test_any_text_is_a_table_or_an_input_error(tmp_path_factory, content):
    source = text(tmp_path_factory.getbasetemp() / f"{os.getpid()}-t.csv", content)
    try:
        assert read_table(source).num_rows > 0
    except InputError as error:
        assert "t.csv" in str(error)  # noqa: PT017


def test_numbers_treated_as_levels_in_python_are_found_in_a_file(tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"zone": rng.integers(1, 6, 200), "size": rng.normal(size=200)})
    detector = NRFDetector(categorical=["zone"], max_iter=5, random_state=0).fit(table)
    csv.write_csv(table, tmp_path / "rows.csv")
    score_stream(detector, tmp_path / "rows.csv", tmp_path / "scores.csv")
    found = csv.read_csv(tmp_path / "scores.csv")["score"].to_numpy()
    np.testing.assert_allclose(found, detector.score_samples(table), rtol=1e-6)
    (tmp_path / "odd.csv").write_text("zone,size\nnorth,1.0\n")
    with pytest.raises(InputError, match="'zone', row 1: 'north' is no number"):
        score_stream(detector, tmp_path / "odd.csv", tmp_path / "scores.csv")
