"""The paper's table of one-class detection: AUROC in percent, mean and standard deviation over ten runs.

Its own columns are of the best epoch on the test images. The others are quoted there from Ruff et al., "Deep one-class
classification", 2018, where settings of OC-SVM were chosen with labelled test images.
"""

from __future__ import annotations

METHODS = ("OC-SVM", "KDE", "isolation forest", "DCAE", "AnoGAN", "Deep SVDD", "SGLD", "SGHMC")

_TABLES = {
    "mnist": """
    98.6/0.0 97.1/0.0 98.0/0.3 97.6/0.7 96.6/1.3 98.0/0.7 98.9/0.7 98.9/0.6
    99.5/0.0 98.9/0.0 97.3/0.4 98.3/0.6 99.2/0.6 99.7/0.1 99.8/0.1 99.8/0.1
    82.5/0.1 79.0/0.0 88.6/0.5 85.4/2.4 85.0/2.9 91.7/0.8 93.2/3.2 91.8/4.0
    88.1/0.0 86.2/0.0 89.9/0.4 86.7/0.9 88.7/2.1 91.9/1.5 93.4/2.0 93.8/2.6
    94.9/0.0 87.9/0.0 92.7/0.6 86.5/2.0 89.4/1.3 94.9/0.8 95.6/1.2 95.6/1.9
    77.1/0.0 73.8/0.0 85.5/0.8 78.2/2.7 88.3/2.9 88.5/0.9 89.4/6.5 94.9/1.4
    96.5/0.0 87.6/0.0 95.6/0.3 94.6/0.5 94.7/2.7 98.3/0.5 98.6/0.5 97.5/2.7
    93.7/0.0 91.4/0.0 92.0/0.4 92.3/1.0 93.5/1.8 94.6/0.9 96.1/1.1 96.4/1.0
    88.9/0.0 79.2/0.0 89.9/0.4 86.5/1.6 84.9/2.1 93.9/1.6 85.1/6.7 88.9/3.3
    93.1/0.0 88.2/0.0 93.5/0.3 90.4/1.8 92.4/1.1 96.5/0.3 93.8/0.8 94.9/1.0
    """,
    "cifar10": """
    61.6/0.9 61.2/0.0 60.1/0.7 59.1/5.1 67.1/2.5 61.7/4.1 78.1/2.1 80.3/2.8
    63.8/0.6 64.0/0.0 50.8/0.6 57.4/2.9 54.7/3.4 65.9/2.1 71.6/2.1 87.0/1.8
    50.0/0.5 50.1/0.0 49.2/0.4 48.9/2.4 52.9/3.0 50.8/0.8 65.4/1.8 68.9/2.0
    55.9/1.3 56.4/0.0 55.1/0.4 58.4/1.2 54.5/1.9 59.1/1.4 63.3/1.9 64.9/2.5
    66.0/0.7 66.2/0.0 49.8/0.4 54.0/1.3 65.1/3.2 60.9/1.1 70.5/2.2 72.7/1.8
    62.4/0.8 62.4/0.0 58.5/0.4 62.2/1.8 60.3/2.6 65.7/2.5 64.1/2.7 66.9/4.0
    74.7/0.3 74.9/0.0 42.9/0.6 51.2/5.2 58.5/1.4 67.7/2.6 75.4/2.4 76.2/2.3
    62.6/0.6 62.6/0.0 55.1/0.7 58.6/2.9 62.5/0.8 67.3/0.9 66.1/3.7 75.4/3.1
    74.9/0.4 75.1/0.0 74.2/0.6 76.8/1.4 75.8/4.1 75.9/1.2 75.6/2.8 78.7/1.7
    75.9/0.3 76.0/0.0 58.9/0.7 67.3/3.0 66.5/2.8 73.1/1.2 70.1/2.0 78.8/2.1
    """,
}

_MEANS = {
    "mnist": (91.29, 86.93, 92.30, 89.65, 91.27, 94.80, 94.38, 95.26),
    "cifar10": (64.78, 64.89, 55.46, 59.39, 61.79, 64.81, 70.02, 74.98),
}

NAMES = {
    "mnist": tuple("0123456789"),
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
}
"""Classes by dataset, in the order of their labels."""


def quoted(dataset: str, method: str) -> tuple[tuple[float, float], ...]:
    """Mean and SD of each class.

    Example:
        >>> quoted("mnist", "SGHMC")[8]
        (88.9, 3.3)
    """
    column = METHODS.index(method)
    lines = [line.split() for line in _TABLES[dataset].strip().splitlines()]
    pairs = [line[column].split("/") for line in lines]
    return tuple((float(mean), float(sd)) for mean, sd in pairs)


def quoted_mean(dataset: str, method: str) -> float:
    """Mean over the classes as the table has it, which is of values before they were rounded.

    Example:
        >>> quoted_mean("mnist", "SGHMC")
        95.26
    """
    return _MEANS[dataset][METHODS.index(method)]
