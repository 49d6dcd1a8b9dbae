"""`nrf detect fit`, `score`, `explain`, `evaluate`, `export` and `watch`: a detector on files."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from nrf.cli.csvs import AS_KNOWN, CsvOptions
from nrf.cli.folders import score_folder
from nrf.cli.labels import normal_rows
from nrf.cli.looking import evaluate, explain, load_model, name_of
from nrf.cli.parsing import Stopped, in_new_names, parse, say
from nrf.cli.show import Percent, print_table, print_warning, print_warnings, said_warnings, show_columns
from nrf.cli.watch import watch
from nrf.cli.windows import NO_WINDOWS, WindowOptions
from nrf.errors import InputError
from nrf.files import require_folder, require_output
from nrf.processes import terminable

if TYPE_CHECKING:
    from nrf.detect import NRFDetector
    from nrf.detect.rows import RowReader
    from nrf.detect.tables.schema import Schema

Data = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATA")]
Model = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="MODEL")]
Train = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TRAIN")]
Columns = Annotated[tuple[str, ...], tyro.conf.arg(metavar="[COL [COL ...]]")]
Csv = tyro.conf.OmitArgPrefixes[CsvOptions]
Windows = tyro.conf.OmitArgPrefixes[WindowOptions]
Ids = Annotated[tuple[str, ...], tyro.conf.arg(name="id", metavar="[COL [COL ...]]")]


def detect(arguments: list[str]) -> int:
    """The actions of `nrf detect`."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: nrf detect ACTION …\nexample: nrf detect fit train.csv --out model\n")
        print("\n".join(f"  {name:10} {summary}" for name, (_, summary) in ACTIONS.items()))
        print("\nFiles are .csv, .csv.gz or .parquet. `nrf detect ACTION --help` says more.")
        return 0 if arguments else 2
    action, rest = arguments[0], arguments[1:]
    if action not in ACTIONS:
        raise InputError(f"unknown action {action!r}; `nrf detect` knows {', '.join(ACTIONS)}")
    if action == "fit":
        rest = in_new_names(rest, OLD_OPTIONS)
    run = parse(ACTIONS[action][0], rest, f"nrf detect {action}")
    try:
        with terminable():
            return run()
    except KeyboardInterrupt as stop:
        raise Stopped(str(stop) or "stopped; nothing was written, and what was there before is as it was") from stop


def fit(
    train: Train,
    /,
    *,
    out: Path,
    ids: Ids = (),
    drop: Columns = (),
    keep: Columns = (),
    categorical: Columns = (),
    label: str | None = None,
    normal: str | None = None,
    false_alarm_rate: float | None = None,
    contamination: float | None = None,
    n_estimators: int = 1,
    field: Literal["auto", "product", "density", "inclusive"] = "auto",
    max_iter: int | None = None,
    max_levels: int = 64,
    scaling: Literal["auto", "quartiles", "deviation"] = "auto",
    keep_examples: bool = False,
    device: str = "cpu",
    seed: int = 0,
    quiet: bool = False,
    card: bool = False,
    windows: Windows = NO_WINDOWS,
    csv: Csv = AS_KNOWN,
) -> int:
    """Fit a detector to a file of normal rows.

    Example: nrf detect fit train.csv --out model --id order --categorical zip --label class --normal good

    With semicolons, decimal commas and its own word for missing values:
    nrf detect fit train.csv --out model --sep ';' --decimal , --missing unbekannt

    Args:
        train: Training rows: .csv, .csv.gz or .parquet.
        out: Folder for the detector; an existing detector there is replaced.
        ids: Columns that identify rows: not learned from, and copied to the scores of later files.
        drop: Columns to leave out, here and in later files.
        keep: Columns to learn from although they look like identifiers, which are left out otherwise.
        categorical: Columns of categories, even where they look like numbers: read as text. Whole numbers with leading
            zeros, such as the zip code 00123, are always read as text.
        label: Column with labels: only rows with the label --normal are trained on, and the column is left out, here
            and in later files.
        normal: The label of normal rows.
        false_alarm_rate: Share of normal rows that may be flagged; 0.05 if nothing is given.
        contamination: Instead of a false-alarm rate, the share of the training rows to flag.
        n_estimators: Models trained at once, whose scores are averaged.
        field: What scores: nearest neighbours times a density (product, which auto chooses), the density alone, which
            scores many times as fast, or the inclusive network of the paper.
        max_iter: Iterations of training. If not given: none, or for the inclusive network a number that depends on the
            number of rows.
        max_levels: Columns of strings with more levels than this are hashed.
        scaling: Units of numbers: standard deviations, with ranks where tails are heavy (auto), the interquartile range
            (quartiles), or standard deviations alone (deviation); the last two become logarithmic beyond three units.
        keep_examples: Store the held-out rows with the detector, in a file that only you can read, so that explanations
            can point to typical rows.
        device: Where to compute: cpu, cuda, …
        seed: Seed.
        quiet: No progress bar.
        card: Write a model card, card.md, to the folder of the detector.
        windows: Windows of a series.
        csv: How the file is written; remembered for later files.
    """
    import warnings

    from nrf.detect.card import CARD, write_card
    from nrf.detect.parameters import check_parameters
    from nrf.detect.tables.dialect import Dialect
    from nrf.detect.tables.files import FileColumns, read_training

    if (label is None) != (normal is None):
        raise InputError("--label and --normal go together: the column, and the label of normal rows")
    if false_alarm_rate is not None and contamination is not None:
        raise InputError("give either --false-alarm-rate or --contamination, not both")
    left_out = {**dict.fromkeys(drop, "--drop"), **dict.fromkeys(ids, "--id")}
    if label is not None:
        left_out[label] = "--label"
    for option, names in (("--keep", keep), ("--categorical", categorical)):
        for name in names:
            if name in left_out:
                raise InputError(f"{option} {name} and {left_out[name]} {name} exclude each other; give one of them")
    for option, name in (("--time", windows.time or ""), ("--group", windows.group or "")):
        if name in left_out:
            raise InputError(f"{option} {name} and {left_out[name]} {name} exclude each other; give one of them")
    _check_free(out)
    settings = {
        "features": windows.features(),
        "false_alarm_rate": false_alarm_rate,
        "contamination": contamination,
        "n_estimators": n_estimators,
        "field": field,
        "max_iter": max_iter,
        "max_levels": max_levels,
        "scaling": scaling,
        "keep_examples": keep_examples,
        "categorical": categorical or None,
        "keep": keep or None,
        "device": device,
        "random_state": seed,
        "verbose": 0 if quiet else 1,
    }
    detector = _detector(
        lambda encoder: show_columns(encoder, left_out),
        **{name: value for name, value in settings.items() if value is not None},
    )
    check_parameters(detector)
    started = time.perf_counter()
    with said_warnings():
        not_read = [name for name in left_out if name != label]
        table, dialect = read_training(train, not_read, label, categorical, csv.over(Dialect()))
    for name in keep:
        if name not in table.column_names:
            raise InputError(f"{train}: --keep {name}: there is no such column")
    total = table.num_rows
    if label is not None and normal is not None:
        table = normal_rows(train, table, label, normal)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        detector.fit(table)
    dropped = tuple(name for name, why in left_out.items() if why == "--drop")
    file = FileColumns(label, tuple(ids), dropped, dialect)
    detector.fitted_ = replace(detector.fitted_, provenance=replace(detector.fitted_.provenance, file=file))
    detector.save(out)
    if card:
        write_card(detector, out)
    print_warnings([w for w in caught if issubclass(w.category, RuntimeWarning)])
    encoder = detector.encoder_
    assert encoder is not None
    useless = [f"{c.name} ({c.reason})" for c in encoder.dropped_columns]
    say(f"rows       {table.num_rows}" + (f" of {total} with {label} = {normal}" if label is not None else ""))
    say(f"columns    {len(encoder.kept_columns)}, encoded as {encoder.n_outputs}")
    say(f"left out   {', '.join([*left_out, *useless]) or 'none'}")
    say(f"threshold  {_threshold(detector).removeprefix('threshold ')}")
    say(f"time       {time.perf_counter() - started:.1f} s")
    say(f"detector   {out}")
    if card:
        say(f"card       {out / CARD}")
    return 0


def score(
    model: Model,
    data: Data,
    /,
    *,
    out: Path,
    fdr: float | None = None,
    top: int = 0,
    engine: Literal["local", "ray"] = "local",
    ids: Ids = (),
    drop: Columns = (),
    device: str = "cpu",
    csv: Csv = AS_KNOWN,
) -> int:
    """Score every row of a file, or of a directory of Parquet files: high = normal. Files may be larger than memory.

    Example: nrf detect score model new.csv --out scores.csv --id order --top 10

    Args:
        model: Folder of the detector.
        data: Rows to score: .csv, .csv.gz or .parquet, or a directory of .parquet files. The label and the columns that
            `fit` left out on request may be present or not.
        out: Where to write row, score, p_value and anomaly (0 or 1): .csv or .parquet; for a directory, a folder, which
            gets one file for each of its files. After a stop, the same command continues.
        fdr: False discovery rate: flag rows so that at most this share of the flagged ones is expected to be normal,
            instead of by the detector's threshold.
        top: Print this many of the most abnormal rows.
        engine: For a directory: score one file after the other (local), or several at a time with Ray.
        ids: Columns to copy to the scores unchanged; those that `fit` was given are copied without being named. A
            column called row, score, p_value or anomaly gets the prefix id_.
        drop: Columns to leave out.
        device: Where to compute: cpu, cuda, …
        csv: How the file is written, where it differs from the training file.
    """
    from nrf.detect.excess import excess_note
    from nrf.detect.tables.stream import OUTPUTS, score_stream

    if top < 0:
        raise InputError(f"--top must be 0 or more, got {top}")
    if data.is_dir():
        if model.is_file():
            raise InputError(f"{data} is a directory and {model} a file: give MODEL first, then DATA")
        if fdr is not None or top or csv != AS_KNOWN:
            raise InputError("--fdr, --top and how a CSV file is written go with one file, not with a directory")
        return score_folder(model, data, out, engine, drop, ids, device)
    if engine != "local":
        raise InputError(f"--engine {engine} scores a directory of .parquet files; {data} is not a directory")
    require_output(out, *OUTPUTS)
    started = time.perf_counter()
    detector = load_model(model, device)
    dialect = csv.over(detector.file_columns_.dialect)
    with said_warnings(), Percent("scoring") as bar:
        summary = score_stream(
            detector, data, out, drop=drop, fdr=fdr, on_batch=bar.reached, ids=ids or None, top=top, dialect=dialect
        )
    seconds = time.perf_counter() - started
    if fdr is None:
        rule = f"flagged by {_threshold(detector)}"
    elif not summary.anomalies:
        rule = (
            f"flagged: no p-value is low enough for a false discovery rate of {fdr:g} among {summary.rows} rows; a fit "
            "to more rows has lower p-values"
        )
    else:
        rule = f"flagged, those with p-value ≤ {summary.p_cutoff:.4g} (false discovery rate {fdr:g})"
    say(f"{summary.rows} rows scored in {seconds:.1f} s, {summary.lowest:.4g} … {summary.highest:.4g}: {out}")
    say(f"{summary.anomalies} {rule}")
    if summary.top:
        rows = [
            (*map(name_of, extreme.ids), str(extreme.row), f"{extreme.score:.4g}", f"{extreme.p_value:.3g}")
            for extreme in summary.top
        ]
        print_table((*summary.ids, "row", "score", "p-value"), rows)
    note = None if fdr is not None else excess_note(detector, summary.anomalies, summary.rows, summary.examples)
    if note is not None:
        print_warning(note)
    return 0


def export(model: Model, /, *, out: Path) -> int:
    """Write a detector as one ONNX graph, from the columns of the table to the score.

    docs/export.md explains its inputs. Columns with more levels than --max-levels of `nrf detect fit` are hashed and
    cannot be exported.

    Example: nrf detect export model --out model.onnx

    Args:
        model: Folder of the detector.
        out: Where to write: .onnx.
    """
    require_output(out, ".onnx")
    detector = load_model(model)
    detector.export(out)
    say(f"ONNX graph: {out}")
    return 0


ACTIONS: dict[str, tuple[Callable[..., int], str]] = {
    "fit": (fit, "fit a detector to a file of normal rows"),
    "score": (score, "score every row of a file"),
    "explain": (explain, "explain why a row is an anomaly"),
    "evaluate": (evaluate, "compare scores with labels"),
    "export": (export, "write a detector as an ONNX graph"),
    "watch": (watch, "report when the rows of a stream have changed"),
}
OLD_OPTIONS = {"--iterations": "--max-iter", "--members": "--n-estimators"}
"""Options of `nrf detect fit` as they were called in version 0.1.0."""


def _detector(show: Callable[[Schema], None], **settings: Any) -> NRFDetector:
    """A detector that shows what it found in the columns before it trains."""
    from nrf.detect import NRFDetector

    class Showing(NRFDetector):
        def _read_schema(self, X: Any) -> RowReader:
            reader = super()._read_schema(X)
            if reader.encoder is not None:
                show(reader.encoder)
            return reader

    return Showing(**settings)


def _check_free(out: Path) -> None:
    """Check, before training and not after it, that the place is free or holds a detector."""
    from nrf.detect.storage import is_free

    require_folder(out)
    if not is_free(out):
        raise InputError(f"{out} exists and is no saved detector; choose another place")


def _threshold(detector: NRFDetector) -> str:
    return str(detector.threshold_rule_)
