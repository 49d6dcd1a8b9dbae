"""# One class of images

A detector is fitted to images of one digit, then scores images of all ten. No other digit and no label is used. Look at
the middle row of images: the other digits that look most normal to the detector. The lower part repeats this for every
digit, next to the distance to the nearest training image: a simple control, and on these small images just as good.
"""

# %%
# ## Set-up
# The picture goes to the folder given by `--out`.

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from nrf import NRFDetector
from nrf.data import resolve
from nrf.metrics import auroc, nearest_neighbour_score

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("."), help="folder for the picture")
out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

# %%
# ## Data
# The 8 × 8 digits that come with scikit-learn, half of each digit for training. The detector takes images as
# `(n, channels, height, width)`.

digits = resolve("digits")
train = digits.train.reshape(-1, 1, 8, 8)
test = digits.test.reshape(-1, 1, 8, 8)

# %%
# ## One detector per digit
# Images become principal components and the length of the residual; from there on they are treated as a table.

detectors, of_detector, of_neighbour = [], [], []
for digit in range(10):
    rows = train[digits.train_labels == digit]
    detector = NRFDetector(false_alarm_rate=0.05, random_state=0).fit(rows)
    other = digits.test_labels != digit  # 1 = an anomaly
    of_detector.append(auroc(detector.score_samples(test), other))
    of_neighbour.append(auroc(nearest_neighbour_score(rows.reshape(-1, 64), test.reshape(-1, 64)), other))
    detectors.append(detector)
print(f"mean AUROC: detector {np.mean(of_detector):.4f}, nearest neighbour {np.mean(of_neighbour):.4f}")

# %%
# ## The hardest digit, from normal to odd
# The test images, sorted by score: the most normal ones, the most normal ones of the other digits, and the oddest.

hardest = int(np.argmin(of_detector))
detector = detectors[hardest]
order = np.argsort(-detector.score_samples(test))
flags = detector.predict(test) == -1
is_normal = digits.test_labels == hardest
own, others = flags[is_normal].mean(), flags[~is_normal].mean()
print(f"digit {hardest}: {own:.1%} of its own test images are flagged, {others:.1%} of the other digits")
strips = {
    "most\nnormal": order[:10],
    "most normal\nof the others": order[~is_normal[order]][:10],
    "oddest": order[-10:],
}

# %%
# ## Picture

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#9ca3af"
figure = plt.figure(figsize=(8.4, 5.6), layout="constrained")
above, below = figure.subfigures(2, 1, height_ratios=(1.2, 1))
axes = above.subplots(3, 10, gridspec_kw={"hspace": 0.02})
for line, (name, chosen) in zip(axes, strips.items(), strict=True):
    for axis, i in zip(line, chosen, strict=True):
        colour = BLUE if is_normal[i] else ORANGE
        axis.imshow(test[i, 0], cmap="gray_r", vmin=0, vmax=1)
        axis.set(xticks=[], yticks=[])
        for spine in axis.spines.values():
            spine.set(color=colour, linewidth=2.5)
        axis.set_xlabel(digits.test_labels[i], color=colour, fontsize=9, labelpad=1)
    line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=11)
above.suptitle(f"Fitted to the digit {hardest} alone, and asked which test images look normal", weight="bold")
axis = below.subplots()
places = np.arange(10)
axis.plot(places - 0.12, of_neighbour, "D", color=GREY, markersize=8, label="nearest training image")
axis.plot(places + 0.12, of_detector, "o", color=BLUE, markersize=9, label="NRFDetector")
axis.set_xticks(places)
axis.set(xlabel="normal digit", ylabel="AUROC on test images", ylim=(min(of_detector + of_neighbour) - 0.01, 1.002))
axis.grid(axis="y", alpha=0.3)
axis.spines[["top", "right"]].set_visible(False)
axis.legend(frameon=False, loc="lower left", ncols=2)
axis.set_title(
    f"every digit in turn: mean AUROC {np.mean(of_detector):.3f}, of the control {np.mean(of_neighbour):.3f}"
)
figure.savefig(out / "03_one_class_images.png", dpi=120)
