"""Whether a fit learned anything: held-out normal rows against synthetic anomalies, before and after training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from nrf.detect.replicas import Replicas
from nrf.detect.selection import anomalies_of
from nrf.fields import Choice

MOST_ROWS = 500
"""Maximum number of held-out rows to use: the check should take milliseconds."""
FEWEST_ROWS = 20
"""With fewer rows, the two numbers differ by chance as much as by training."""
MARGIN = 0.02
"""By how much training must raise the AUROC of one kind of anomaly, at least. On sound fits of small tables some kind
gains 0.03 or more; a learning rate of a millionth brings 0.01."""
CHANCE = 0.6
"""An AUROC up to which a kind of anomaly counts as not recognised."""
GOOD = 0.95
"""A mean AUROC from which on there is little left to gain by training."""

log = logging.getLogger(__name__)


def check_training(
    trained: Replicas,
    untrained: Callable[[], Replicas],
    held: Tensor,
    *,
    groups: Sequence[slice] | None = None,
    warn: Callable[[str], None],
) -> dict[str, float] | None:
    """Compare with the networks before training; warn if training made the score no better.

    No label is needed, and neither the models nor the random numbers of training change. Which kinds of synthetic
    anomaly can be recognised at all depends on the table (uniform draws cannot where columns are uniform, shuffled
    columns cannot where columns are independent), so it is enough that training raised the AUROC of one kind,
    or may have, by the standard error of so few rows.

    Args:
        trained: The networks as they will be used.
        untrained: Returns the networks of the same seeds before training.
        held: Encoded normal rows, or images, that were not trained on.
        groups: Which outputs encode a column of the table, as for :func:`nrf.detect.selection.synthetic_anomalies`.
        warn: Takes the warning.

    Returns:
        Mean AUROC over the kinds of synthetic anomalies, ``synthetic_auroc`` and ``untrained_synthetic_auroc``; None
        with fewer than 20 held-out rows.
    """
    if len(held) < FEWEST_ROWS:
        return None
    rows = held[:MOST_ROWS]
    anomalies = anomalies_of(rows, groups=groups)
    after, before = (_won(replicas, rows, anomalies) for replicas in (trained, untrained()))
    gains = after - before
    hopes = gains.mean(1) + gains.std(1) / np.sqrt(len(rows))
    found = {"synthetic_auroc": float(after.mean()), "untrained_synthetic_auroc": float(before.mean())}
    if hopes.max() < MARGIN and after.mean() < GOOD:
        warn(
            "training made this detector no better: its AUROC of held-out normal rows against synthetic anomalies is "
            f"{found['synthetic_auroc']:.2f}, that of the same networks before training "
            f"{found['untrained_synthetic_auroc']:.2f} (0.5 is chance). Do not rely on its scores: try more rows, "
            "leave out columns without information such as identifiers, or change max_iter or learning_rate"
        )
    return found


def check_field(
    settled: Replicas,
    choices: Sequence[Choice],
    held: Tensor,
    *,
    groups: Sequence[slice] | None = None,
    n_iter: int,
    warn: Callable[[str], None],
) -> dict[str, float] | None:
    """How well a field of neighbours and density separates held-out rows from synthetic anomalies; its network's part.

    Args:
        settled: The networks as they will be used.
        choices: What held-out rows chose for each network.
        held: Encoded normal rows that were not trained on.
        groups: Which outputs encode a column of the table.
        n_iter: Number of iterations that the networks were trained for.
        warn: Takes the warning if the field separates nothing.

    Returns:
        ``synthetic_auroc``; for trained networks also ``strength``, which is λ, and ``held_out_gain``, what they add to
        the log-likelihood of held-out rows in nats, with ``held_out_gain_error``. None with fewer than 20 held-out
        rows.
    """
    found = {}
    if n_iter > 0:
        found = {
            "strength": float(np.mean([choice.strength for choice in choices])),
            "held_out_gain": float(np.mean([choice.gain for choice in choices])),
            "held_out_gain_error": float(np.mean([choice.standard_error for choice in choices])),
        }
        if found["strength"] == 0:
            log.info("the network adds nothing to what neighbours and mixture know: it has no part in the scores")
    if len(held) < FEWEST_ROWS:
        return found or None
    rows = held[:MOST_ROWS]
    won = _won(settled, rows, anomalies_of(rows, groups=groups))
    found["synthetic_auroc"] = float(won.mean())
    if (won.mean(1) + won.std(1) / np.sqrt(len(rows))).max() < CHANCE:
        warn(
            "this detector cannot separate normal rows from any kind of synthetic anomaly: the mean AUROC is "
            f"{found['synthetic_auroc']:.2f} (0.5 is chance). Do not rely on its scores: try more rows, or leave out "
            "columns without information such as identifiers"
        )
    return found


def _won(replicas: Replicas, rows: Tensor, anomalies: dict[str, Tensor]) -> NDArray[np.float64]:
    """For each kind of anomaly, of each normal row: the share of anomalies that score lower. Its mean is the AUROC."""

    def score(x: Tensor) -> NDArray[np.float64]:
        return np.asarray(replicas.potentials(x).mean(0).double().cpu().numpy())

    normal, won = score(rows), []
    for made in anomalies.values():
        others = np.sort(score(made))
        lower, not_higher = (np.searchsorted(others, normal, side) for side in ("left", "right"))
        won.append((lower + not_higher) / (2 * len(others)))
    return np.stack(won)
