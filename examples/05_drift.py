"""# Drift

A pump's vibration creeps up, so slowly that single rows still pass. `DriftMonitor` gathers evidence over the
whole stream. If nothing changes, the probability that it ever raises an alarm is at most `1 %`, however long the stream
is. Look at which line crosses the alarm level, and when.
"""

# %%
# ## Set-up
# The picture goes to the folder given by `--out`.

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from nrf import NRFDetector
from nrf.detect import DriftMonitor

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("."), help="folder for the picture")
out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

# %%
# ## A pump
# Flow and pressure depend on the same load. From row 1,500 on the mean vibration of the second stream creeps up by half
# a standard deviation in a thousand rows.

N, CHANGE = 4000, 1500


def pump(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Normal rows, one per minute."""
    load = rng.normal(size=n)
    return pd.DataFrame(
        {
            "flow_l_min": 120 + 15 * load + 4 * rng.normal(size=n),
            "pressure_bar": 6 + 0.8 * load + 0.3 * rng.normal(size=n),
            "temperature_c": 55 + 3 * rng.normal(size=n),
            "vibration_mm_s": rng.lognormal(0.7, 0.25, n),
        }
    )


rng = np.random.default_rng(0)
train, steady, creeping = pump(3000, rng), pump(N, rng), pump(N, rng)
spread = train["vibration_mm_s"].std()
creeping["vibration_mm_s"] += 0.5 * spread * np.clip((np.arange(N) - CHANGE) / 1000, 0, None)

# %%
# ## Detector and monitor
# The monitor compares scores and columns with the rows that the detector was calibrated on; `keep_examples` stores
# these. Rows come in batches, as they would from a service.

detector = NRFDetector(false_alarm_rate=0.01, keep_examples=True, random_state=0).fit(train)
states = {}
for name, stream in {"steady": steady, "creeping": creeping}.items():
    monitor = DriftMonitor(detector, level=0.01)
    for start in range(0, N, 100):
        monitor.update(stream[start : start + 100])
    states[name] = monitor.state

state = states["creeping"]
print("steady stream:", "an alarm" if states["steady"].alarm else "no alarm")
for series in state.series:
    if series.alarm:
        later = series.alarm_row - CHANGE
        print(f"creeping stream: alarm of {series.name} at row {series.alarm_row}, {later} rows after the change")
first = min(series.alarm_row for series in state.series if series.alarm)
flagged = detector.predict(creeping) == -1
print(
    f"rows flagged one by one: {flagged[:CHANGE].mean():.1%} before, {flagged[CHANGE:first].mean():.1%} until the alarm"
)

# %%
# ## Picture
# Evidence is the capital of someone who bets against "nothing has changed", on a logarithmic scale.

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6b7280"
figure, (above, below) = plt.subplots(2, 1, figsize=(8.4, 5.4), layout="constrained", sharex=True)
vibration = creeping["vibration_mm_s"]
above.plot(vibration, ".", color=GREY, markersize=2.5, alpha=0.6, label="row")
above.plot(vibration.rolling(200, center=True).mean(), color=ORANGE, linewidth=2, label="mean of 200 rows")
above.set(ylabel="vibration (mm/s)", xlim=(0, N))
above.legend(loc="upper left", frameon=False, ncols=2)

PALE = "#b6bcc6"
rows = [row for row, _ in state.history]
labels = {"score": "score", "vibration_mm_s": "vibration", "flow_l_min": "other columns"}
for i, series in enumerate(state.series):
    colour = {"score": BLUE, "vibration_mm_s": ORANGE}.get(series.name, PALE)
    evidence = [point[i] for point in state.column_history]
    below.plot(rows, evidence, color=colour, linewidth=1 if colour == PALE else 2.2, label=labels.get(series.name))
quiet = [evidence for _, evidence in states["steady"].history]
below.plot(rows, quiet, color="black", linestyle=":", linewidth=1.5, label="steady stream, largest of all")
limit = -np.log10(state.level)
below.axhline(limit, color=GREY, linestyle="--", linewidth=1.2)
below.text(20, limit + 0.1, "alarm level", color=GREY, va="bottom")
below.legend(loc="upper left", frameon=False)
below.set(xlabel="row of the stream", ylabel="evidence, log₁₀", ylim=(-4, 10))
for axis in (above, below):
    axis.axvline(CHANGE, color=GREY, linewidth=1)
    axis.axvline(first, color=ORANGE, linewidth=1, linestyle="--")
    axis.spines[["top", "right"]].set_visible(False)
above.text(CHANGE - 20, 0.75, "creep begins", ha="right", color=GREY)
above.text(first + 20, 0.75, f"alarm, {first - CHANGE} rows later", color=ORANGE)
figure.suptitle("Rows pass one by one, yet the stream has moved: the monitor names the column", weight="bold")
figure.savefig(out / "05_drift.png", dpi=120)
