"""`nrf tune`: settings of a detector, searched without labels."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import tyro

from nrf.cli.csvs import AS_KNOWN, CsvOptions
from nrf.cli.labels import normal_rows
from nrf.cli.parsing import say
from nrf.cli.show import print_table, said_warnings
from nrf.errors import InputError

Table = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TABLE")]
Columns = Annotated[tuple[str, ...], tyro.conf.arg(metavar="[COL [COL ...]]")]


def tune(
    table: Table,
    /,
    *,
    out: Path,
    drop: Columns = (),
    label: str | None = None,
    normal: str | None = None,
    trials: int = 12,
    minutes: float | None = None,
    engine: Literal["local", "ray"] = "local",
    false_alarm_rate: float | None = None,
    seed: int = 0,
    csv: tyro.conf.OmitArgPrefixes[CsvOptions] = AS_KNOWN,
) -> int:
    """Search a detector's settings without labels, by synthetic anomalies.

    Candidates differ in field, scaling, number of models and training; the first has the defaults. All are fitted to
    70 % of the rows and compared on the others. Synthetic anomalies differ from real ones, so the result is a hint, not
    proof: where you have labelled anomalies, `nrf detect evaluate` says more.

    Example: nrf tune normal.csv --out search --minutes 10

    Args:
        table: Normal rows: .csv, .csv.gz or .parquet.
        out: Folder for trials.csv, best.json and model, the detector with the best settings, fitted to all rows.
        drop: Columns to leave out.
        label: Column with labels: only rows with the label --normal are used, and the column is not a feature.
        normal: The label of the rows to use.
        trials: Maximum number of candidates.
        minutes: Minutes for the trials; no trial starts later.
        engine: One trial after the other (local), or several at a time by Ray Tune; the results are the same.
        false_alarm_rate: False-alarm rate of the detector that is written.
        seed: Seed.
        csv: How the file is written.
    """
    from dataclasses import replace

    from nrf.detect.tables.dialect import Dialect
    from nrf.detect.tables.files import FileColumns, read_training
    from nrf.detect.tuning import MODEL, Trial, require_free, write_search
    from nrf.detect.tuning import tune as search_settings

    if (label is None) != (normal is None):
        raise InputError("--label and --normal go together: the column, and the label of normal rows")
    require_free(out)
    base = {} if false_alarm_rate is None else {"false_alarm_rate": false_alarm_rate}
    with said_warnings():
        rows, dialect = read_training(table, drop, label, (), csv.over(Dialect()))
    if label is not None and normal is not None:
        rows = normal_rows(table, rows, label, normal)

    def show(trial: Trial) -> None:
        say(f"trial {trial.number:3}  AUROC {trial.auroc:.4f}  {trial.seconds:6.1f} s  {_words(trial.parameters)}")

    started = time.perf_counter()
    seconds = None if minutes is None else 60 * minutes
    found = search_settings(rows, trials=trials, seed=seed, seconds=seconds, engine=engine, base=base, on_trial=show)
    fitted = found.detector.fitted_
    file = FileColumns(label, (), tuple(drop), dialect)
    found.detector.fitted_ = replace(fitted, provenance=replace(fitted.provenance, file=file))
    write_search(found, out)
    shown = [("default", trial) for trial in found.trials[:1] if trial.number == 0]  # absent if time ran out
    print_table(
        ("", "AUROC, synthetic", "settings"),
        [(w, f"{t.auroc:.4f}", _words(t.parameters)) for w, t in (*shown, ("best", found.best))],
    )
    say(f"{len(found.trials)} trials in {time.perf_counter() - started:.1f} s; detector: {out / MODEL}")
    return 0


def _words(parameters: dict[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parameters.items())
