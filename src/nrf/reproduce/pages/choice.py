"""Tables of docs/should-i-use-this.md: where another detector is the better choice."""

from __future__ import annotations

from collections.abc import Callable

from nrf.reproduce.detectors.block_report import FIT, SCORE
from nrf.reproduce.detectors.blocks import MIX, REAL, WIDE
from nrf.reproduce.detectors.standing import RANK
from nrf.reproduce.pages.records import Records, Rows
from nrf.reproduce.runner.report import Table

OURS = "NRF"
MARGIN = 0.01
CONTROLS = ("untrained NRF",)


def _others(rows: Rows) -> list[str]:
    """Methods but ours and the controls, from the best mean rank to the worst."""
    standing = {row.method: row.mean for row in rows.all if row.metric == RANK}
    return [method for method in sorted(standing, key=lambda m: standing[m]) if method not in (OURS, *CONTROLS)]


def alternatives(records: Records) -> Table:
    """Each system on the real tables: how often it is ahead of ours, and what it costs."""
    rows = records.rows("detectors").within(REAL)

    def auroc(method: str, case: str) -> float:
        return rows.get(method, "AUROC", preset=REAL, case=case).mean

    def line(method: str) -> list[str]:
        gains = [auroc(method, case) - auroc(OURS, case) for case in rows.cases("AUROC")]
        ahead, behind = sum(gain > MARGIN for gain in gains), sum(gain < -MARGIN for gain in gains)
        seconds = [f"{rows.get(method, metric, preset=REAL).mean:.3g}" for metric in (FIT, SCORE)]
        mean = rows.get(method, "AUROC", preset=REAL).text()
        counts = ["", ""] if method == OURS else [str(ahead), str(behind)]
        return [f"**{method}**" if method == OURS else method, mean, *counts, *seconds]

    count = len(rows.cases("AUROC"))
    header = [f"{count} real tables (`nrf reproduce detectors`)", "mean AUROC", "ahead of NRF on", "behind NRF on"]
    header += ["fit, CPU-seconds in all", "score, CPU-seconds in all"]
    return Table(header, [line(method) for method in (OURS, *_others(rows))])


def losses(records: Records) -> Table:
    """Every table on which some other system is ahead of ours by more than the margin, the largest gap first."""
    lines = list[tuple[float, list[str]]]()
    for block in (REAL, MIX, WIDE, None):
        rows = records.rows("detectors").within(block)
        for case in rows.cases("AUROC"):
            means = {m: rows.get(m, "AUROC", preset=block, case=case).mean for m in (OURS, *_others(rows))}
            ours = means.pop(OURS)
            best = max(means, key=lambda m: means[m])
            gap = means[best] - ours
            if gap > MARGIN:
                ahead = sum(mean > ours + MARGIN for mean in means.values())
                place = [case, block or "our own sets", f"{ours:.3f}", f"{best}: {means[best]:.3f}", f"{ahead}"]
                lines.append((gap, place))
    header = ["table", "among", "NRF", "the best other", f"others ahead by more than {MARGIN}"]
    return Table(header, [line for _, line in sorted(lines, key=lambda found: -found[0])])


TABLES: dict[str, Callable[[Records], Table]] = {
    "choice, alternatives": alternatives,
    "choice, losses": losses,
}
