"""# Windows of a time series

Windows show machine faults in which every single value is ordinary, and only the order is wrong. The pressure of this
machine rises slowly and falls fast, again and again; a new recording has three faults. Look at the lower panels: a
detector of single rows sees nothing, while the same detector with `Windows` as its feature step sees all three.
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
from nrf.detect import Windows

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("."), help="folder for the picture")
out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

# %%
# ## A recording
# Ten values per second. No two cycles take the same time, so the clock says nothing about the pressure.


def recording(n_cycles: int, rng: np.random.Generator) -> pd.DataFrame:
    """Cycles of 3 to 5 seconds: the pressure rises, and falls in a fifth of the time."""
    parts = []
    for length in rng.integers(30, 51, n_cycles):
        phase = np.arange(length) / length
        parts.append(np.where(phase < 0.8, phase / 0.8, (1 - phase) / 0.2))
    pressure = 2 + 4 * np.concatenate(parts)
    pressure += 0.08 * rng.standard_normal(len(pressure))
    return pd.DataFrame({"seconds": np.arange(len(pressure)) / 10, "bar": pressure})


rng = np.random.default_rng(0)
train, new = recording(100, rng), recording(25, rng)

# %%
# ## Three faults
# The sensor is stuck, the recording runs backwards, the machine runs at double speed.

faults = {"stuck": slice(200, 230), "backwards": slice(450, 530), "double speed": slice(700, 780)}
bar = new["bar"].to_numpy().copy()
noise = 0.08 * rng.standard_normal(30)
bar[faults["stuck"]] = bar[200] + noise
bar[faults["backwards"]] = bar[faults["backwards"]][::-1]
bar[faults["double speed"]] = bar[700:860:2]
new["bar"] = bar

is_fault = np.zeros(len(new), dtype=bool)
for place in faults.values():
    is_fault[place] = True
print(f"training rows have {train.bar.min():.2f} to {train.bar.max():.2f} bar")
print(f"rows of faults have {bar[is_fault].min():.2f} to {bar[is_fault].max():.2f} bar")

# %%
# ## Two detectors
# A window holds 16 rows, `1.6` seconds. Windows overlap, so the rows to calibrate on are held out as one stretch of
# time. The score of a row is the mean over the windows that contain it, so a fault also affects the rows next to it.

alone = NRFDetector(false_alarm_rate=0.01, random_state=0).fit(train[["bar"]])
windows = NRFDetector(false_alarm_rate=0.01, random_state=0, features=Windows(16, time="seconds")).fit(train)
results = {
    "single rows": (alone.score_samples(new[["bar"]]), alone.offset_),
    "windows of 16 rows": (windows.score_samples(new), windows.offset_),
}
far = np.convolve(is_fault, np.ones(33), mode="same") == 0  # no window contains such a row and one of a fault
for name, (scores, threshold) in results.items():
    flagged = scores < threshold
    seen = ", ".join(f"{fault} {flagged[place].mean():.0%}" for fault, place in faults.items())
    print(f"{name}: flagged of the faults: {seen}; of rows far from them: {flagged[far].mean():.1%}")

# %%
# ## Picture

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6b7280"
figure, axes = plt.subplots(3, 1, figsize=(8.4, 5.6), layout="constrained", sharex=True, height_ratios=(1.3, 1, 1))
seconds = new["seconds"].to_numpy()
axes[0].plot(seconds, new["bar"], color="#1f2933", linewidth=1)
axes[0].set_ylabel("pressure (bar)")
for name, place in faults.items():
    middle = seconds[place].mean()
    axes[0].text(middle, 6.6, name, ha="center", va="bottom", color=ORANGE, weight="bold")
    for axis in axes:
        axis.axvspan(seconds[place][0], seconds[place][-1], color=ORANGE, alpha=0.15, linewidth=0)
axes[0].set_ylim(1.5, 7.4)
for axis, (name, (scores, threshold)) in zip(axes[1:], results.items(), strict=True):
    axis.plot(seconds, scores, color=BLUE, linewidth=1)
    axis.axhline(threshold, color=GREY, linestyle="--", linewidth=1.2)
    axis.fill_between(seconds, scores, threshold, where=scores < threshold, color=ORANGE, interpolate=True)
    axis.set(ylabel="score u", xlim=(seconds[0], seconds[-1]))
    axis.set_title(name, loc="left", fontsize=11)
axes[1].text(38, results["single rows"][1] - 0.3, "threshold: 1 % false alarms", va="top", color=GREY)
axes[2].set_xlabel("time (s)")
for axis in axes:
    axis.spines[["top", "right"]].set_visible(False)
figure.suptitle("Ordinary values in the wrong order: windows see what single rows do not", weight="bold")
figure.savefig(out / "02_time_series_windows.png", dpi=120)
