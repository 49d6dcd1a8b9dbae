"""# A table with categories

A table of parcels has numbers, categories, booleans and gaps, and `NRFDetector` takes it as it is. Four kinds of wrong
rows are tried. In three of them every single value is common, and only the combination is not. Look at how far each
kind falls below the threshold, which is set without a single label.
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

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=Path, default=Path("."), help="folder for the picture")
out = parser.parse_known_args()[0].out  # a notebook has arguments of its own

# %%
# ## Parcels
# The price depends on weight, zone and service, the time on zone and service. Fragile goods never go by ship, and one
# weight in twenty is missing.

ZONES = {"city": (1.0, 1.0), "country": (1.5, 2.0), "abroad": (4.0, 6.0)}  # factors of the price and of the time
SERVICES = {"express": (2.0, 0.5), "standard": (1.0, 1.0), "ship": (0.6, 4.0)}


def parcels(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Normal parcels."""
    zone = rng.choice(list(ZONES), n, p=[0.5, 0.3, 0.2])
    service = np.where(zone == "abroad", rng.choice(list(SERVICES), n), rng.choice(["express", "standard"], n))
    fragile = (rng.random(n) < 0.2) & (service != "ship")
    weight = rng.lognormal(0.5, 0.6, n)
    price_factor, time_factor = (
        np.array([ZONES[z][i] * SERVICES[s][i] for z, s in zip(zone, service, strict=True)]) for i in (0, 1)
    )
    return pd.DataFrame(
        {
            "zone": zone,
            "service": service,
            "fragile": fragile,
            "weight_kg": np.where(rng.random(n) < 0.05, np.nan, weight.round(2)),
            "price_eur": ((3 + 2 * weight) * price_factor * rng.lognormal(0, 0.05, n)).round(2),
            "hours": (20 * time_factor * rng.lognormal(0, 0.15, n)).round(1),
        }
    )


rng = np.random.default_rng(0)
train, normal = parcels(3000, rng), parcels(400, rng)
print(train.head(4).to_string(index=False))

# %%
# ## Wrong rows
# Each kind starts from normal parcels. Only the last one has a value that no training row has.

slow = parcels(2000, rng).query("service == 'express' and zone == 'city'")[:100].assign(hours=lambda t: t.hours * 4)
cheap = parcels(2000, rng).query("zone == 'abroad' and weight_kg > 0")[:100]
cheap = cheap.assign(price_eur=lambda t: (t.price_eur / 3).round(2))
ship = parcels(2000, rng).query("service == 'ship'")[:100].assign(fragile=True)
new = parcels(100, rng).assign(service="drone")

groups = {
    "normal rows": normal,
    "express, but slow": slow,
    "abroad, at a third of the price": cheap,
    "fragile, by ship": ship,
    "service 'drone', never seen": new,
}

# %%
# ## Fit and flag
# Categories, gaps and scales are learned from the rows. A fifth of the rows is held out to set the threshold, so that
# at most one normal row in a hundred is flagged, on average.

detector = NRFDetector(false_alarm_rate=0.01, random_state=0).fit(train)
print(detector.threshold_rule_)

scores = {name: detector.score_samples(rows) for name, rows in groups.items()}
flagged = {name: float((detector.predict(rows) == -1).mean()) for name, rows in groups.items()}
for name, share in flagged.items():
    print(f"{name:32} {share:6.1%} flagged")

# %%
# ## Picture

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6b7280"
figure, axis = plt.subplots(figsize=(8.4, 4.4), layout="constrained")
for place, (name, values) in enumerate(scores.items()):
    shift = rng.uniform(-0.3, 0.3, len(values))
    axis.scatter(values, place + shift, s=9, alpha=0.5, linewidth=0, color=BLUE if place == 0 else ORANGE)
    axis.text(1.02, place, f"{flagged[name]:.1%}", transform=axis.get_yaxis_transform(), va="center", fontsize=11)
axis.axvline(detector.offset_, color=GREY, linewidth=1.5, linestyle="--")
axis.annotate(
    "threshold: 1 % false alarms",
    (detector.offset_, -0.55),
    (-6, 0),
    textcoords="offset points",
    ha="right",
    va="center",
    color=GREY,
)
axis.text(1.02, -0.75, "flagged", transform=axis.get_yaxis_transform(), va="center", color=GREY)
axis.set_yticks(range(len(scores)), list(scores), fontsize=11)
axis.set(ylim=(len(scores) - 0.5, -0.9), xlabel="score u(x): high = normal")
figure.suptitle("Common values in odd combinations: each kind of wrong row stands out", weight="bold")
axis.spines[["top", "right", "left"]].set_visible(False)
axis.tick_params(axis="y", length=0)
figure.savefig(out / "01_table_with_categories.png", dpi=120)
