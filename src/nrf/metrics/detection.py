"""How well a score separates anomalies from normal rows, and the simplest detector to compare with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nrf.errors import InputError


def auroc(score: NDArray[np.floating], anomaly: NDArray[np.integer]) -> float:
    """Area under the ROC curve of a score that is *high for normal rows*.

    Args:
        score: One score per row.
        anomaly: One label per row: 1 for an anomaly, 0 for a normal row.

    Example:
        >>> auroc(np.array([0.9, 0.8, 0.1]), np.array([0, 0, 1]))
        1.0
    """
    from sklearn.metrics import roc_auc_score

    if len(np.unique(anomaly)) != 2:
        raise InputError("AUROC needs both normal rows (0) and anomalies (1) among the labels")
    return float(roc_auc_score(1 - anomaly, score))


def flagged_metrics(score: NDArray[np.floating], anomaly: NDArray[np.integer], share: float) -> dict[str, float]:
    """Precision, recall and F1 when the lowest-scoring share of the rows is flagged, and average precision.

    Anomalies are the positive class; of rows with equal scores those that come first are flagged first.

    Args:
        score: One score per row, high for normal rows.
        anomaly: One label per row: 1 for an anomaly, 0 for a normal row.
        share: Share of the rows to flag.

    Example:
        >>> found = flagged_metrics(np.array([0.9, 0.1, 0.2, 0.8]), np.array([0, 1, 0, 0]), share=0.5)
        >>> found["precision"], found["recall"]
        (0.5, 1.0)
    """
    from sklearn.metrics import average_precision_score

    if not 0 < share < 1:
        raise InputError(f"the share to flag must lie between 0 and 1, got {share}")
    if len(np.unique(anomaly)) != 2:
        raise InputError("precision and recall need both normal rows (0) and anomalies (1) among the labels")
    n = max(1, round(share * len(score)))
    hits = int(anomaly[np.argsort(score, kind="stable")[:n]].sum())
    precision, recall = hits / n, hits / int(anomaly.sum())
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    average = float(average_precision_score(anomaly, -score))
    return {"precision": precision, "recall": recall, "F1": f1, "average precision": average}


def nearest_neighbour_score(train: NDArray[np.floating], rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Minus the Euclidean distance to the nearest training row: the control that every detector should beat.

    Args:
        train: Training rows.
        rows: Rows to score.

    Example:
        >>> float(nearest_neighbour_score(np.zeros((1, 2)), np.array([[3.0, 4.0]]))[0])
        -5.0
    """
    from sklearn.neighbors import NearestNeighbors

    index = NearestNeighbors(n_neighbors=1).fit(train.reshape(len(train), -1))
    distance, _ = index.kneighbors(rows.reshape(len(rows), -1))
    return np.asarray(-distance[:, 0])
