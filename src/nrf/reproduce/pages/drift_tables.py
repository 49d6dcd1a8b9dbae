"""Tables of docs/drift.md."""

from __future__ import annotations

from collections.abc import Callable

from nrf.reproduce.monitoring.experiment import delay_table, false_alarm_table, speed_table
from nrf.reproduce.pages.records import Records
from nrf.reproduce.runner.report import Table

TABLES: dict[str, Callable[[Records], Table]] = {
    "drift-false-alarms": lambda records: false_alarm_table(records.rows("drift").all),
    "drift-delays": lambda records: delay_table(records.rows("drift").all),
    "drift-speed": lambda records: speed_table(records.rows("drift").all),
}
