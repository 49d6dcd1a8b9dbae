"""Shared by all tests: one thread (tiny networks, two test processes), fakes of every dataset's shape."""

from __future__ import annotations

import os

# Some virtual machines name matrix instructions (AMX) and refuse them: products in bfloat16 would end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import pytest
import torch
from hypothesis import settings

from nrf.data import DATASETS, Splits

# The same examples in every run, so that a change is judged by what it changed. `pytest --hypothesis-profile=search`
# draws new ones.
settings.register_profile("fixed", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile("fixed")


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def no_global_randomness():
    """For tests in which the package alone may draw: it must not draw from, or seed, the global generator."""
    before = torch.get_rng_state()
    yield
    assert torch.equal(before, torch.get_rng_state()), "the global random state was used"


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def fake_splits():
    """Random rows with the shape and range of a dataset, for tests that must not need its files."""

    def make(name: str, n: int = 48) -> Splits:
        shape = DATASETS[name].event_shape
        draw = np.random.default_rng(0).random((2 * n, *shape), dtype=np.float32)
        rows = 2 * draw - 1 if len(shape) == 3 else draw
        labels = np.arange(n) % 2
        return Splits(name, rows[:n], None, rows[n:], labels.astype(np.int64), bounds=None, columns=None)

    return make
