"""`nrf detect explain` and `nrf detect evaluate`: explain one row of a file, or compare scores with labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from nrf.cli.csvs import AS_KNOWN, CsvOptions
from nrf.cli.labels import measures
from nrf.cli.parsing import say
from nrf.cli.show import Percent, cell, one_line, print_table, said_warnings
from nrf.errors import InputError
from nrf.files import require_output

if TYPE_CHECKING:
    from nrf.detect import NRFDetector

Data = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATA")]
Model = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="MODEL")]
Columns = Annotated[tuple[str, ...], tyro.conf.arg(metavar="[COL [COL ...]]")]
Csv = tyro.conf.OmitArgPrefixes[CsvOptions]


def load_model(model: Path, device: str = "cpu") -> NRFDetector:
    """The detector of a folder."""
    from nrf.detect import NRFDetector

    return NRFDetector.load(model, device=device)


def name_of(value: Any) -> str:
    """The identifier of a row as text, with all its digits."""
    return "missing" if value is None else one_line(str(value))


def explain(
    model: Model,
    data: Data,
    /,
    *,
    row: int,
    out: Path | None = None,
    drop: Columns = (),
    device: str = "cpu",
    csv: Csv = AS_KNOWN,
) -> int:
    """Explain why a row scores as it does, and what would have to change for it to pass as normal.

    Example: nrf detect explain model new.csv --row 17 --out why.png

    Args:
        model: Folder of the detector.
        data: File with the row: .csv, .csv.gz or .parquet.
        row: Number of the row, from 1.
        out: Where to draw the contributions of the features: .png.
        drop: Columns to leave out.
        device: Where to compute: cpu, cuda, …
        csv: How the file is written, where it differs from the training file.
    """
    if row < 1:
        raise InputError(f"--row counts from 1, got {row}")
    if out is not None:
        require_output(out, ".png")
    import warnings

    from nrf.detect.explain import lowest_window
    from nrf.detect.tables.frame import taken
    from nrf.detect.tables.whole import batches_for
    from nrf.detect.windows import Windows

    detector = load_model(model, device)
    last, known = 0, detector.file_columns_
    with said_warnings():
        for batch in batches_for(detector, data, drop=drop, dialect=csv.over(known.dialect)):
            last = batch.last
            if row <= last:
                break
        else:
            raise InputError(f"{data}: has {last} rows, there is no row {row}")
    windows = isinstance(detector.features_, Windows)
    table = batch.table.slice(row - batch.first, 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X has feature names")
        warnings.filterwarnings("ignore", message=".*are in no window")
        if windows:
            rows_of_window = lowest_window(detector, batch.table, row - batch.first)
            table = taken(batch.table, rows_of_window)
        explanation = detector.explain(table)[0]
    state = "anomaly" if explanation.is_anomaly else "normal"
    names = batch.ids.slice(row - batch.first, 1).to_pylist()[0] if batch.ids.num_columns else {}
    which = f" ({', '.join(f'{name} {name_of(value)}' for name, value in names.items())})" if names else ""
    if windows:
        which += f", in its lowest window, rows {rows_of_window[0] + 1} to {rows_of_window[-1] + 1}"
    say(f"row {row}{which}: {state}, score {explanation.score:.4g}, p-value {explanation.p_value:.3g}")
    say(str(detector.threshold_rule_))
    cells = {c.feature: c.value for c in explanation.changes} if windows else table.to_pylist()[0]
    if explanation.changes:
        rows = [
            (c.feature, cell(cells.get(c.feature, "–")), cell(c.typical), f"{c.contribution:+.4g}", c.reason or "")
            for c in explanation.changes
        ]
        print_table(("feature", "value", "typical value", "contribution", "what is new"), rows)
        if not explanation.reached:
            say(f"even with these changes, the row stays below the threshold (score {explanation.revised_score:.4g})")
    else:
        say("nothing has to change for it to pass as normal")
    if out is not None:
        from nrf.figures import contribution_bars

        out.parent.mkdir(parents=True, exist_ok=True)
        contribution_bars(explanation, f"row {row}").savefig(out, dpi=130)
        say(f"figure: {out}")
    return 0


def evaluate(
    model: Model,
    data: Data,
    /,
    *,
    label: str,
    normal: str | None = None,
    anomaly: str | None = None,
    drop: Columns = (),
    device: str = "cpu",
    csv: Csv = AS_KNOWN,
) -> int:
    """Compare scores with labels: AUROC, average precision, and what the threshold does.

    Example: nrf detect evaluate model labelled.csv --label class --normal good

    Args:
        model: Folder of the detector.
        data: Labelled rows: .csv, .csv.gz or .parquet. Rows without a label are left out.
        label: Column with the labels.
        normal: The label of normal rows; all others are anomalies.
        anomaly: Instead of --normal, the label of anomalies; all others are normal.
        drop: Columns to leave out.
        device: Where to compute: cpu, cuda, …
        csv: How the file is written, where it differs from the training file.
    """
    import numpy as np

    from nrf.detect.tables.stream import score_batch
    from nrf.detect.tables.texts import label_is
    from nrf.detect.tables.whole import batches_for

    wanted = normal if anomaly is None else anomaly
    if wanted is None or (normal is not None and anomaly is not None):
        raise InputError("give either --normal or --anomaly: which label of the column is which?")
    detector = load_model(model, device)
    scores, found, given, seen = [], [], [], set[str]()
    dialect = csv.over(detector.file_columns_.dialect)
    with said_warnings(), Percent("scoring") as bar:
        for batch in batches_for(detector, data, drop=drop, label=label, dialect=dialect):
            scores.append(score_batch(detector, batch))
            found.append(label_is(batch.labels, wanted))
            given.append(np.asarray(batch.labels.is_valid()))
            seen |= {v for v in batch.labels.unique().to_pylist()[:9] if v is not None}
            bar.reached(batch.last, batch.share)
    labelled = np.concatenate(given)
    alone = np.isnan(np.concatenate(scores))  # rows in no window
    left_out = int((~labelled).sum()), int((labelled & alone).sum())
    labelled &= ~alone
    u, is_wanted = np.concatenate(scores)[labelled], np.concatenate(found)[labelled]
    if is_wanted.all() or not is_wanted.any():
        state = "all" if is_wanted.any() else "none"
        raise InputError(
            f"{data}: {state} of the {len(u)} labelled rows have {label} = {wanted}; both kinds are needed. "
            f"Labels are, for example, {', '.join(map(repr, sorted(seen)[:8])) or 'missing everywhere'}"
        )
    truth = is_wanted if anomaly is not None else ~is_wanted
    say(f"rows {len(u)}, anomalies {int(truth.sum())}" + _left_out(*left_out))
    print_table(("measure", "value"), measures(u, truth, u < detector.offset_))
    say(str(detector.threshold_rule_))
    return 0


def _left_out(unlabelled: int, alone: int) -> str:
    counts = {"without a label": unlabelled, "in no window": alone}
    return "".join(f", {count} {which} left out" for which, count in counts.items() if count)
