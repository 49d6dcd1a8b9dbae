"""# What would make this row normal?

`explain` names the cells that would have to change for a row to pass, and proposes a value for each. Here the decimal
point is shifted in one cell of each test row, and the detector does not know in which. Look at the proposals: where
other columns determine the cell (radius, perimeter and area), they come close to the original value; elsewhere they are
typical values.
"""

# %%
# ## Set-up
# The picture goes to the folder given by `--out`.

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from nrf import NRFDetector

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("."), help="folder for the picture")
out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

# %%
# ## Data
# Ten measurements of cell nuclei, of the benign samples in scikit-learn's breast cancer table. Columns depend on each
# other: radius, perimeter and area say nearly the same thing.

table = load_breast_cancer(as_frame=True)
cells = table.data[table.target == 1].iloc[:, :10].rename(columns=lambda name: name.removeprefix("mean "))
rng = np.random.default_rng(0)
order = rng.permutation(len(cells))
test, train = cells.iloc[order[:40]], cells.iloc[order[40:]]

detector = NRFDetector(false_alarm_rate=0.05, random_state=0).fit(train)
test = test[detector.predict(test) == 1].reset_index(drop=True)  # rows that pass as they are

# %%
# ## Slips of the decimal point
# One cell of each row becomes ten times too large or too small, cycling through the columns.

slipped = test.copy()
wrong = np.resize(cells.columns, len(test))
for i, column in enumerate(wrong):
    slipped.loc[i, column] *= rng.choice([0.1, 10.0])

found = detector.explain(slipped)
flagged = [i for i, explanation in enumerate(found) if explanation.is_anomaly]
named = [i for i in flagged if [change.feature for change in found[i].changes] == [wrong[i]]]
print(f"{len(flagged)} of {len(test)} slips are flagged; the explanation names that cell and no other in {len(named)}")

first = found[flagged[0]]
print(
    f"one of them: score {first.score:.2f}, threshold {first.threshold:.2f}, after the change {first.revised_score:.2f}"
)
print(first.changes[0])

# %%
# ## How good are the proposals?
# Values are in standard deviations of the column, with its mean at 0. The control proposes this mean for every cell.

mean, spread = train.mean(), train.std()
truth = np.array([(test[wrong[i]][i] - mean[wrong[i]]) / spread[wrong[i]] for i in named])
proposed = np.array([(found[i].changes[0].typical - mean[wrong[i]]) / spread[wrong[i]] for i in named])
determined = np.isin(wrong[named], ["radius", "perimeter", "area"])
groups = {"radius, perimeter, area": determined, "the other columns": ~determined}
for name, chosen in groups.items():
    error, control = (np.abs(e[chosen]).mean() for e in (proposed - truth, truth))
    print(f"{name}: mean error of the proposals {error:.2f} SD, of the column's mean {control:.2f} SD")

# %%
# ## Picture
# The left panel shows one row for each column: the wrong value, the proposal and the original value.

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#9ca3af"
figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 4.4), layout="constrained", width_ratios=(1.35, 1))
columns = [name for name in cells.columns if name in set(wrong[named])]
for place, name in enumerate(columns):
    i = next(i for i in named if wrong[i] == name)
    was, now = slipped[name][i] / test[name][i], found[i].changes[0].typical / test[name][i]
    left.annotate("", (now, place), (was, place), arrowprops={"arrowstyle": "->", "color": GREY, "linewidth": 1.5})
    left.plot(was, place, "X", color=ORANGE, markersize=9, label="wrong" if place == 0 else None)
    left.plot(now, place, "o", color=BLUE, markersize=7, label="proposed" if place == 0 else None)
left.axvline(1, color="black", linewidth=1.2, zorder=0, label="true value")
left.set(xscale="log", xlabel="value, as a multiple of the true one", ylim=(len(columns) - 0.4, -0.6))
left.set_xticks([0.1, 0.2, 0.5, 1, 2, 5, 10], ["0.1", "0.2", "0.5", "1", "2", "5", "10"])
left.minorticks_off()
left.set_yticks(range(len(columns)), columns, fontsize=11)
left.legend(loc="upper center", bbox_to_anchor=(0.4, -0.16), ncols=3, frameon=False, handletextpad=0.2, columnspacing=1)

limits = np.array([-3, 4])
right.plot(limits, limits, color=GREY, linewidth=1)
for (name, chosen), colour, mark in zip(groups.items(), (BLUE, "#E69F00"), ("o", "^"), strict=True):
    right.plot(truth[chosen], proposed[chosen], mark, color=colour, markersize=7, alpha=0.85, label=name)
right.set(xlabel="true value (SD from the mean)", ylabel="proposed value (SD from the mean)", xlim=limits, ylim=limits)
right.set_aspect("equal")
right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False)
for axis in (left, right):
    axis.spines[["top", "right"]].set_visible(False)
figure.suptitle(f"The wrong cell, and no other, is named in {len(named)} of {len(flagged)} flagged rows", weight="bold")
figure.savefig(out / "04_counterfactual.png", dpi=120)
