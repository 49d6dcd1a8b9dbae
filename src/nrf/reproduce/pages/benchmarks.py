"""Tables of docs/serve.md, docs/scale.md and docs/time.md, of the records that scripts in benchmarks/ write."""

from __future__ import annotations

from collections.abc import Callable

from nrf.reproduce.pages.records import Records, Rows
from nrf.reproduce.runner.report import Table

FIELD = "product"
"""The field that the service is measured with, which is the default."""
OTHERS = "cores that others kept busy"
MANY = 10**9
SERIES = {
    "sunspots": "sunspots",
    "elnino": "sea temperature",
    "co2": "carbon dioxide",
    "weather": "weather",
}
FORMS = {"rows": "rows alone", "values": "values", "differences": "last value and differences"}
KINDS = ("frozen", "shuffled", "shifted")


# ------------------------------------------------------------------------------------------------------------- serving


class _Part:
    """What one part of benchmarks/serving.py has found."""

    def __init__(self, rows: Rows, name: str) -> None:
        self.rows, self.name = rows, name

    def __call__(self, metric: str, case: str | None = None) -> float:
        return self.rows.get(self.name, metric, preset=FIELD, case=case).mean

    def cases(self, metric: str) -> list[str]:
        mine = [row for row in self.rows.within(FIELD).all if row.method == self.name]
        return Rows(self.name, mine).cases(metric)

    def command(self, *options: str) -> str:
        """What to type, the options by the metrics of their names."""
        settings = " ".join(f"--{name} {self(name):g}" for name in options)
        threads = f"OMP_NUM_THREADS={self('threads'):g}"
        rows = f"--rows {self('training rows'):g}"
        return f"`{threads} python benchmarks/serving.py {self.name} {settings} {rows}`"

    def faults(self) -> str:
        """How many answers were wrong, in words where there was none."""
        errors, wrong = self("errors"), self("wrong answers")
        return f"{errors:,.0f} errors, {wrong:,.0f} wrong" if errors or wrong else "no error, none wrong"

    def others(self) -> str:
        found = self.rows.find(self.name, OTHERS, preset=FIELD)
        return "" if found is None else f"{found.mean:.2f}"


def serving(records: Records) -> Table:
    """Speed, memory and what clients see when the service is killed."""
    rows = records.rows("serving")
    one, many, memory, kill = (_Part(rows, name) for name in ("one-row", "batches", "memory", "kill"))
    share = "share of the speed of score_samples"
    forms = [
        f"{name} {many('ms, median', name):.1f} ms, {100 * many(share, name):.0f} % of its speed"
        for name in many.cases(share)
    ]
    lines = [
        [
            f"one row per request, {one('clients'):g} clients, {one('seconds'):g} s",
            one.command("clients", "seconds"),
            f"{one('answers'):,.0f} answers, {one.faults()}; {one('rows per second'):,.0f} rows per second, median "
            f"{one('ms to an answer, median'):.1f} ms, 99 % quantile {one('ms to an answer, 99 % quantile'):.1f} ms; "
            f"{one('ms of processor per request, service'):.2f} ms of processor per request, all threads together, of "
            f"the client {one('ms of processor per request, client'):.2f} ms",
            one.others(),
        ],
        [
            f"{many('rows per request'):,.0f} rows per request, {many('seconds'):g} s",
            many.command("seconds"),
            f"`score_samples` {many('ms, median', 'score_samples'):.1f} ms; {'; '.join(forms)}; "
            + ("none wrong" if many("wrong answers") == 0 else f"{many('wrong answers'):g} of them wrong"),
            many.others(),
        ],
        [
            f"memory, {memory('clients'):g} clients, {memory('minutes'):g} minutes",
            memory.command("clients", "minutes"),
            f"{memory('MiB after a fifth'):.0f} MiB after a fifth of the time, {memory('MiB at the end'):.0f} MiB at "
            f"the end, {memory('MiB at most'):.0f} MiB at most; {memory('answers'):,.0f} answers, {memory.faults()}",
            memory.others(),
        ],
        [
            f"SIGKILL under load, {kill('kills'):g} times in {kill('seconds'):.0f} s, {kill('clients'):g} clients",
            kill.command("clients", "kills"),
            f"{kill('answers'):,.0f} answers, {kill.faults()}; {kill('broken connections'):,.0f} refused or reset "
            f"connections; {kill('answers in the second after'):,.0f} answers in the second after",
            kill.others(),
        ],
    ]
    return Table(["what", "command", "found", OTHERS], lines)


# ----------------------------------------------------------------------------------------------------------- directory


def directory(records: Records) -> Table:
    """Time and memory of a directory of files."""
    counts = ("training rows", "files", "rows", "columns", "MB of files", "seconds", "CPU-seconds")
    lines = []
    for method, field, of in _directories(records):
        parts = [row.mean for row in of.all if row.metric == "resident MB at most"]
        lines.append(
            [
                f"`{method}`, `{field}`",
                *(f"{_one(of, metric):,.0f}" for metric in counts),
                f"{_one(of, 'rows') / _one(of, 'CPU-seconds'):,.0f}",
                " ".join(f"{mb:.0f}" for mb in parts),
            ]
        )
    return Table(["command, field", *counts, "rows per CPU-second", "resident MB, by tenths of the run"], lines)


def many_rows(records: Records) -> Table:
    """What a billion rows would take: arithmetic."""
    lines = []
    for method, field, of in _directories(records):
        times = MANY / _one(of, "rows")
        seconds = times * _one(of, "CPU-seconds")
        lines.append(
            [
                f"`{method}`, `{field}`",
                f"{times * _one(of, 'MB of files') / 1000:,.0f}",
                f"{seconds:,.0f}",
                f"{seconds / 60:,.0f}",
            ]
        )
    return Table([f"{MANY:,} rows", "GB of files", "CPU-seconds", "minutes of one core"], lines)


def _directories(records: Records) -> list[tuple[str, str, Rows]]:
    rows = records.rows("directory").all
    places = sorted({(row.method, str(row.preset)) for row in rows})
    return [(*place, Rows("directory", [row for row in rows if (row.method, row.preset) == place])) for place in places]


def _one(rows: Rows, metric: str) -> float:
    return rows.get(rows.all[0].method, metric, preset=rows.all[0].preset).mean


# ------------------------------------------------------------------------------------------------------------- windows


def windows(records: Records) -> Table:
    """AUROC by form of the windows and kind of fault, by the mean and the lowest score of a row's windows."""
    rows, lines = records.rows("windows"), list[list[str]]()
    for series, name in SERIES.items():
        presets = list(dict.fromkeys(str(row.preset) for row in rows.all if row.method == series))
        for i, preset in enumerate(presets):
            size, form = preset.split(", ")
            cases = ("mean",) if size == "1" else ("mean", "min")
            numbers = [
                " / ".join(f"{rows.get(series, f'AUROC, {kind}', preset=preset, case=case).mean:.3f}" for case in cases)
                for kind in KINDS
            ]
            lines.append(["" if i else name, size, FORMS[form], *numbers])
    return Table(["series", "window", "columns", *KINDS], lines)


TABLES: dict[str, Callable[[Records], Table]] = {
    "serving": serving,
    "directory": directory,
    "directory, a billion rows": many_rows,
    "windows": windows,
}
