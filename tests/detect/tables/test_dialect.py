"""CSV files as people write them: separators, decimals, thousands, and cells that do not belong in their column."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from nrf.cli import main
from nrf.detect import NRFDetector
from nrf.detect.storage import _digest
from nrf.detect.tables.columns import NumericColumn
from nrf.detect.tables.dialect import Dialect, sniffed
from nrf.detect.tables.files import FileColumns, batches, read_table, read_training
from nrf.detect.tables.stream import score_stream
from nrf.detect.tables.texts import Cells
from nrf.errors import InputError

pa = pytest.importorskip("pyarrow")
csv = pytest.importorskip("pyarrow.csv")


def column(path, cells, header="v;w"):
    """A file with the cells, and a number beside each."""
    path.write_text(header + "\n" + "".join(f"{cell};{i % 7}\n" for i, cell in enumerate(cells)))
    return path


def numbers(n=200, odd=()):
    """So many numbers, with the odd cells in rows 18, 19, …"""
    cells = [f"{v:.3f}" for v in np.random.default_rng(0).normal(size=n)]
    cells[17 : 17 + len(odd)] = odd
    return cells


def read(path, sep=";", **more):
    """The column v, and what was said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        strings = more.pop("strings", ())
        table = read_table(path, strings=strings, dialect=Dialect(separator=sep, **more))
    return table["v"], [str(w.message) for w in caught]


# ---------------------------------------------------------------------------------------------------------- odd cells


def test_a_dash_among_numbers_is_a_missing_value_and_said(tmp_path):
    values, (said,) = read(column(tmp_path / "x.csv", numbers(1000, ["-", " ? "])))
    assert values.type == pa.float64()
    assert [i for i, v in enumerate(values.to_pylist()) if v is None] == [17, 18]
    assert "column 'v': 2 cells among 998 numbers read as missing: row 18 '-', row 19 '?'" in said
    assert "--categorical v" in said
    whole, _ = read(column(tmp_path / "x.csv", [*map(str, range(50)), "unknown"]))
    assert whole.type == pa.int64()


@pytest.mark.parametrize("odd", ["abc", "1_000", "0x10", "12 kg", "5%", "1.000.5", "1,000", "#DIV/0!", "2024-03-01"])
def test_other_cells_among_numbers_are_refused_with_their_rows(tmp_path, odd):
    source = column(tmp_path / "x.csv", numbers(100, [odd]))
    with pytest.raises(InputError, match="column 'v' has 99 numbers, and 1 other: row 18") as caught:
        read(source)
    message = str(caught.value)
    for part in ("x.csv", repr(odd), "--missing", "--odd missing", "--categorical v"):
        assert part in message
    values, (said,) = read(source, odd="missing")
    assert values.null_count == 1
    assert f"row 18 {odd!r}" in said
    values, said = read(source, missing=(odd,))
    assert (values.null_count, values.type, said) == (1, pa.float64(), [])
    values, said = read(source, strings=["v"])
    assert (values.type, said) == (pa.string(), [])


def test_the_first_rows_are_named_and_the_rest_counted(tmp_path):
    with pytest.raises(InputError, match=r"row 18 'a', row 19 'b', row 20 'c' and 2 more"):
        read(column(tmp_path / "x.csv", numbers(200, ["a", "b", "c", "d", "e"])))


def test_how_many_odd_cells_make_names(tmp_path):
    for n, odd in ((500, 25), (20, 4)):  # 5 %, or a handful of a short column
        with pytest.raises(InputError, match=f"{n - odd} numbers, and {odd} other"):
            read(column(tmp_path / "x.csv", numbers(n - odd) + ["A"] * odd))
    for n, odd in ((500, 26), (20, 5)):
        assert read(column(tmp_path / "x.csv", numbers(n - odd) + ["A"] * odd))[0].type == pa.string()


def test_columns_of_names_stay_names(tmp_path):
    for cells in (
        ["Oslo", "Rome", "-"] * 40,
        ["A1", "B2", "3"] * 40,
        ["10.0.0.1", "10.0.0.2", "192.168.1.7"] * 40,
        ["1-2", "3-4", "5-6-7"] * 40,
        ["1", "2", "G"] * 40,  # a third of it is no number
        ["a1,5", "b"] * 50,
        ["-", "?"] * 50,
        ["12:345", "9:1"] * 50,
    ):
        values, said = read(column(tmp_path / "x.csv", cells))
        assert (values.to_pylist(), said) == (cells, [])


def test_many_markers_are_fine_but_not_more_than_numbers(tmp_path):
    values, said = read(column(tmp_path / "x.csv", ["?", "1.5", "2.5"] * 50))
    assert (values.null_count, len(said)) == (50, 1)
    source = column(tmp_path / "x.csv", ["none", "none", "2"] * 50)
    with pytest.raises(InputError, match=r"50 numbers, and 100 words .* --missing none; .* --categorical v"):
        read(source)
    assert read(source, missing=("none",))[0].null_count == 100


def test_codes_with_a_stray_cell_stay_codes(tmp_path):
    cells = ["00123", "99999", "04512"] * 40 + ["-"]
    values, (said,) = read(column(tmp_path / "x.csv", cells))
    assert values.to_pylist() == cells
    assert "leading zeros" in said


def test_hexadecimal_numbers_are_not_read_as_others(tmp_path):
    with pytest.raises(InputError, match=r"column 'v' .* not written in decimals: row 31 '0x10'"):
        read(column(tmp_path / "x.csv", ["1", "-2", "3"] * 10 + ["0x10"]))


@pytest.mark.parametrize(
    ("cells", "option"),
    [
        (["1,5", "2,25", "-3,125"], "give --decimal ','"),
        (["1,5", "2", "3,25"], "give --decimal ','"),
        (["1.500,5", "2,25", "12.000,0"], "give --decimal ',' --thousands '.'"),
        (["1,000.5", "12,345.25", "17.5"], "give --thousands ','"),
        (["1_000", "12_345", "17"], "give --thousands '_'"),
        (["1 000", "12 345", "17"], "give --thousands ' '"),
        (["1,000", "12,345", "17"], "give --thousands ',' or --decimal ','"),
    ],
)
def test_numbers_written_in_another_way_are_refused_with_the_option(tmp_path, cells, option):
    source = column(tmp_path / "x.csv", cells * 40)
    with pytest.raises(InputError, match="column 'v'") as caught:
        read(source)
    assert f"{option}, or --categorical v" in str(caught.value)
    assert "row 1 " in str(caught.value) or "row 2 " in str(caught.value)


@pytest.mark.parametrize(
    ("cell", "known", "option"),
    [
        ("54,15", Dialect(), "give --decimal ','"),
        ("54.15", Dialect(decimal=","), "give --decimal '.'"),
        ("1.500,5", Dialect(), "give --decimal ',' --thousands '.'"),
        ("1,500.5", Dialect(), "give --thousands ','"),
        ("1,500", Dialect(), "give --decimal ',' or --thousands ','"),
        ("54.15", Dialect(decimal=",", thousands="."), "give --decimal '.' --thousands ','"),
    ],
)
def test_a_later_file_with_numbers_in_another_writing_is_refused_with_the_option(cell, known, option):
    with pytest.raises(
        InputError, match=r"row 2: .* is no number; if this file writes numbers in another way"
    ) as caught:
        Cells(Path("x.csv"), "v", pa.array(["7", cell]), dialect=known).read("numeric")
    assert str(caught.value).endswith(option)


def test_prices_with_a_sign_are_names_and_fit_says_so(tmp_path):
    for cells in (["€16.62", "€7"], ["1.234,50 €", "7 €"], ["12.5%", "7%"], ["$ 1,000", "-$7"]):
        found, said = read(column(tmp_path / "x.csv", cells * 20))
        assert pa.types.is_string(found.type)
        assert f"has numbers with a sign, such as {cells[0]!r}, which are read as names; take out the sign" in said[0]
    assert read(column(tmp_path / "x.csv", ["€ A", "$ B", "7 %", "x%"] * 10))[1] == []


def test_a_first_line_that_holds_values_is_pointed_out(tmp_path):
    for header, value in (("O-1,toys,16.62", "16.62"), ("a,b,2024-03-01 08:06:47", "2024-03-01 08:06:47")):
        (tmp_path / "x.csv").write_text(f"{header}\nO-2,food,3.5\nO-3,food,4.5\n")
        with pytest.warns(UserWarning, match=f"the first line names a column '{value}'; if that is a value"):
            read_table(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("0,1,2024\n1.5,2,3\n")  # whole numbers are names, of arrays and of years
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_table(tmp_path / "x.csv")


def test_decimals_and_thousands(tmp_path):
    def values(cells, **dialect):
        found, said = read(column(tmp_path / "x.csv", cells), **dialect)
        assert said == []
        return found.to_pylist()

    assert values(["1,5", "-2", ""], decimal=",") == [1.5, -2.0, None]
    assert values(["1.234,5", "12.345.678", "7"], decimal=",", thousands=".") == [1234.5, 12345678.0, 7.0]
    assert values(["1,234", "7"], thousands=",") == [1234, 7]
    assert values(["1 234", "7,5"], thousands=" ", decimal=",") == [1234.0, 7.5]
    for cells in (["1,5", "2", "3", "4", "5"], ["12,34", *"123456"], ["1,0000", *"123456"]):  # no groups of three
        with pytest.raises(InputError, match=r"1 other: row 1|written in another way"):
            read(column(tmp_path / "x.csv", cells), thousands=",")
    with pytest.raises(InputError, match=r"row 1 '1\.5'"):  # a point is no decimal comma
        read(column(tmp_path / "x.csv", ["1.5", "2,5", "3,5", "4,5", "5,5", "6,5"]), decimal=",")


# -------------------------------------------------------------------------------------------------------------- dates


def test_dates_with_stray_cells(tmp_path):
    days = [f"2024-03-{1 + i % 28:02}" for i in range(100)]
    values, (said,) = read(column(tmp_path / "x.csv", [*days, "-"]))
    assert (str(values.type), values.null_count) == ("timestamp[us]", 1)
    assert values[0].as_py() == dt.datetime(2024, 3, 1)
    assert "1 cell among 100 dates read as missing: row 101 '-'" in said
    for odd in ("soon", "2024-02-30", "20240301"):
        with pytest.raises(InputError, match=f"100 dates, and 1 other: row 101 '{odd}'"):
            read(column(tmp_path / "x.csv", [*days, odd]))
        assert read(column(tmp_path / "x.csv", [*days, odd]), odd="missing")[0].null_count == 1
    clock, (said,) = read(column(tmp_path / "x.csv", [*(f"{i % 24:02}:30" for i in range(100)), "?"]))
    assert (clock.type, clock[1].as_py()) == (pa.time32("s"), dt.time(1, 30))
    assert "times of day" in said


@pytest.mark.parametrize(
    "other", ["01/03/2024", "1.3.2024", "2024/03/01", "2024-3-1", "2024-03-01T10:00Z", "1 Mar 2024"]
)
@pytest.mark.parametrize("share", [2, 50])
def test_dates_written_in_several_ways_are_refused(tmp_path, other, share):
    cells = ["2024-03-01"] * (100 - share) + [other] * share
    with pytest.raises(
        InputError, match=rf"written in several ways: like 2024-02-01: row 1 .*row {101 - share} '{other}'"
    ):
        read(column(tmp_path / "x.csv", cells))


def test_dates_that_are_not_iso_are_said_to_be_names(tmp_path):
    values, (said,) = read(column(tmp_path / "x.csv", ["01/03/2024", "15/03/2024"] * 40))
    assert values.type == pa.string()
    assert "dates like 1/2/2024, which are read as names; write 2024-02-01" in said


# --------------------------------------------------------------------------------------------------------- separators


@pytest.mark.parametrize("sep", [";", "\t", "|"])
@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_the_separator_is_found_and_said(tmp_path, sep, name):
    content = f"a{sep}b\n" + "".join(f"{i / 3:.3f}{sep}Oslo, old\n" for i in range(30))
    (tmp_path / name).write_bytes(gzip.compress(content.encode()) if name.endswith("gz") else content.encode())
    with pytest.warns(UserWarning, match="separated by (tabs|';'|'\\|'); --sep") as caught:
        table, dialect = read_training(tmp_path / name)
    assert (table.column_names, table["b"][0].as_py(), dialect.separator) == (["a", "b"], "Oslo, old", sep)
    assert len(caught) == 1
    assert read_table(tmp_path / name, dialect=Dialect(separator=sep)).equals(table)  # and nothing is said


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("a,b\n1,x;y\n", ","),
        ('a,"b;c"\n1,2\n', ","),
        ("a,b;c\n1,2\n", ","),
        ("a;b,c\n1;2\n", ";"),
        ("a\n1\n", ","),
        ("a\n1;2\n", ","),
        ("a;b\n1;2\n1\n", ";"),
        ("\n\na;b\n1;2\n", ";"),
        ("a,b\n1;2\n", ","),
    ],
)
def test_what_separates(tmp_path, content, found):
    (tmp_path / "x.csv").write_text(content)
    assert sniffed(tmp_path / "x.csv") == found


def test_a_separator_that_cannot_be_told_is_asked_for(tmp_path):
    (tmp_path / "x.csv").write_text("a;b,c\n1;2,3\n4;5,6\n")
    with pytest.raises(InputError, match=r"',' and ';' both separate .* --sep"):
        read_table(tmp_path / "x.csv")
    assert read_table(tmp_path / "x.csv", dialect=Dialect(separator=",")).column_names == ["a;b", "c"]
    assert [sniffed(tmp_path / "x.csv", known) for known in (",", ";")] == [",", ";"]
    (tmp_path / "x.csv").write_text("a;b|c\n1,2\n")
    with pytest.raises(InputError, match=r"not clear .* give --sep"):
        read_table(tmp_path / "x.csv")


def test_dialects_that_cannot_be():
    for wrong in ({"separator": ""}, {"separator": ";;"}, {"separator": "a"}, {"separator": '"'}, {"decimal": ";"}):
        with pytest.raises(InputError):
            Dialect(**wrong)
    with pytest.raises(InputError, match="separate thousands"):
        Dialect(decimal=",", thousands=",")
    with pytest.raises(InputError, match="thousands"):
        Dialect(thousands="x")


# ------------------------------------------------------------------------------------------------------------- scoring


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Fitted on a file with semicolons, decimal commas, thousands and a dash."""
    folder = tmp_path_factory.mktemp("dialect")
    rng = np.random.default_rng(0)
    rows = [f"{v:,.2f}".replace(",", " ").replace(".", ",") for v in rng.normal(size=120) * 2000]
    days = [f"2024-03-{d:02}" for d in rng.integers(1, 28, 120)]
    city = rng.choice(["Oslo", "-"], 120)
    rows[3], days[4] = "-", "Unknown"
    lines = [f"{r};{d};{c}\n" for r, d, c in zip(rows, days, city, strict=True)]
    (folder / "train.csv").write_text("amount;day;city\n" + "".join(lines))
    options = ["--decimal", ",", "--thousands", "space", "--max-iter", "5", "--quiet"]
    assert main(["detect", "fit", str(folder / "train.csv"), "--out", str(folder / "model"), *options]) == 0
    return folder / "model"


def test_the_detector_remembers_how_its_file_was_written(model, capsys, tmp_path):
    known = NRFDetector.load(model).file_columns_.dialect
    assert known == Dialect(";", ",", " ", (), ("-", "unknown"))
    rows = "1 234,5;2024-03-05;-\n-;2024-03-06;Oslo\n12,5;UNKNOWN;Oslo\n"
    (tmp_path / "new.csv").write_text("amount;day;city\n" + rows)
    capsys.readouterr()
    assert main(["detect", "score", str(model), str(tmp_path / "new.csv"), "--out", str(tmp_path / "s.csv")]) == 0
    assert "nrf:" not in capsys.readouterr().err
    fitted = NRFDetector.load(model)
    (batch,) = batches(fitted.encoder_, tmp_path / "new.csv", known=fitted.file_columns_)
    assert batch.table["amount"].to_pylist() == [1234.5, None, 12.5]
    assert batch.table["day"].is_null().to_pylist() == [False, False, True]
    assert batch.table["city"].to_pylist() == ["-", "Oslo", "Oslo"]  # a name is a name


@pytest.mark.parametrize("action", ["score", "explain", "evaluate"])
def test_later_files_may_be_written_otherwise(model, capsys, tmp_path, action):
    rows = "1234.5|2024-03-05|Oslo|a\nn.v.|2024-03-06|Oslo|b\n"
    (tmp_path / "new.csv").write_text("amount|day|city|y\n" + rows)
    more = {
        "score": ["--out", str(tmp_path / "s.csv"), "--drop", "y"],
        "explain": ["--row", "2", "--drop", "y"],
        "evaluate": ["--label", "y", "--normal", "a"],
    }[action]
    command = ["detect", action, str(model), str(tmp_path / "new.csv"), *more]
    capsys.readouterr()
    assert main([*command, "--decimal", "."]) == 2
    assert "row 2: 'n.v.' is no number; if it means a missing value, name it after --missing" in capsys.readouterr().err
    assert main([*command, "--decimal", ".", "--missing", "n.v."]) == 0
    assert capsys.readouterr().err.count("separated by '|'") == 1
    assert main([*command, "--decimal", ".", "--odd", "missing", "--sep", "|"]) == 0
    said = capsys.readouterr().err
    assert "column 'amount': read as missing values, here and further on: row 2 'n.v.'" in said
    assert "separated" not in said


def test_odd_cells_are_said_once_a_column(model, tmp_path):
    fitted = NRFDetector.load(model)
    (tmp_path / "new.csv").write_text("amount;day;city\n" + "x;2024-02-30;Oslo\n1;2024-02-01;Oslo\n" * 50)
    dialect = Dialect(decimal=",", odd="missing")
    with pytest.warns(UserWarning, match="read as missing") as caught:
        read = list(batches(fitted.encoder_, tmp_path / "new.csv", batch_rows=10, dialect=dialect))
    assert sorted(str(w.message).split("'")[1] for w in caught if "read as" in str(w.message)) == ["amount", "day"]
    assert sum(b.table["amount"].null_count for b in read) == 50
    assert sum(b.table["day"].null_count for b in read) == 50


def test_detectors_saved_before_there_were_dialects(model, tmp_path):
    for file in model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    description = json.loads((tmp_path / "detector.json").read_text())
    del description["file_columns"]["dialect"]
    description["digest"] = _digest(description)
    (tmp_path / "detector.json").write_text(json.dumps(description))
    assert NRFDetector.load(tmp_path).file_columns_ == FileColumns()


def test_a_dash_in_the_training_file_does_not_make_names_of_numbers(tmp_path):
    """The fault this module is about: each number became a level, and how far off a new one is was not seen."""
    rng = np.random.default_rng(0)
    train, new = (rng.normal(size=(600, 2)).round(2).astype(str) for _ in range(2))
    train[500, 0], new[70, 0], new[80, 0] = "-", "10000", "-"
    for name, rows in (("train.csv", train), ("new.csv", new)):
        (tmp_path / name).write_text("a,b\n" + "".join(",".join(row) + "\n" for row in rows))
    command = ["detect", "fit", str(tmp_path / "train.csv"), "--out", str(tmp_path / "m"), "--max-iter", "20"]
    assert main([*command, "--quiet"]) == 0
    detector = NRFDetector.load(tmp_path / "m")
    assert isinstance(detector.encoder_.columns[0], NumericColumn)
    summary = score_stream(detector, tmp_path / "new.csv", tmp_path / "s.csv", top=1)
    assert summary.top[0].row == 71
    assert summary.anomalies < 90
