"""Datasets by name, checked by hash, as ``Splits``.

To add one: write a file beside the others that ends in a ``DATASET``, and add a line to ``DATASETS``. Several tables
that belong together are a ``Collection``.

>>> resolve("digits").event_shape
(64,)
"""

from nrf.data import cifar10, digits, gmm, kddcup99, kddcup99_released, mnist, real_tables
from nrf.data.access import dataset, fetch, folder_of, locate, resolve, verify
from nrf.data.arrays import read_array
from nrf.data.base import Check, Collection, DataFile, Dataset, Splits, cache_dir, one_class

DATASETS: dict[str, Dataset] = {
    "gmm": gmm.DATASET,
    "digits": digits.DATASET,
    "mnist": mnist.DATASET,
    "cifar10": cifar10.DATASET,
    "kddcup99": kddcup99.DATASET,
    "kddcup99-released": kddcup99_released.DATASET,
}
"""Datasets by name."""

COLLECTIONS: dict[str, Collection] = {"tables": real_tables.COLLECTION}
"""Collections of tables by name."""

__all__ = [
    "COLLECTIONS",
    "DATASETS",
    "Check",
    "Collection",
    "DataFile",
    "Dataset",
    "Splits",
    "cache_dir",
    "dataset",
    "fetch",
    "folder_of",
    "locate",
    "one_class",
    "read_array",
    "resolve",
    "verify",
]
