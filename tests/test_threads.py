"""Fits and scores in several threads of one process are those of one thread, and what threads share is left alone."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nrf import NRFDetector
from nrf.detect.features import RotationFeatures
from nrf.detect.parallel import in_threads, one_thread
from nrf.learners import SNGANConfig
from nrf.models import frozen
from nrf.networks import MLPPotential, Snapshot
from nrf.networks.layers import normalised
from nrf.reproduce.baselines import DAGMM
from nrf.runs.presets import find_preset
from nrf.runs.spec import Preset
from nrf.seeds import DrawsFrom, stream
from nrf.training import Trainer

Result = TypeVar("Result")
N_THREADS = 8
ROWS = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def global_state() -> object:
    """No test here may change the global random state or the number of threads."""
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    yield
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


def at_once(work: Callable[[int], Result]) -> list[Result]:
    """What each of the threads finds, all begun at the same moment."""
    ready = Barrier(N_THREADS)

    def begin(i: int) -> Result:
        ready.wait()
        return work(i)

    with ThreadPoolExecutor(N_THREADS) as pool:
        return list(pool.map(begin, range(N_THREADS)))


def detector(seed: int) -> NRFDetector:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return NRFDetector(random_state=seed, max_iter=12, n_estimators=1 + seed % 2, verbose=0).fit(ROWS)


def values(fitted: NRFDetector) -> list[Tensor]:
    members = fitted.members_
    kept = [*members.learner.modules.values(), *members.averaged.values()]
    return [torch.tensor(fitted.offset_), *(v.clone() for m in kept for v in m.state_dict().values())]


def equal(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.filterwarnings("ignore")
def test_detectors_fitted_at_once_are_those_fitted_one_by_one() -> None:
    one_by_one = [values(detector(i)) for i in range(N_THREADS)]
    for _ in range(2):
        together = at_once(lambda i: values(detector(i)))
        assert [equal(a, b) for a, b in zip(one_by_one, together, strict=True)] == [True] * N_THREADS


def test_scores_loads_and_exports_in_threads(tmp_path: Path) -> None:
    fitted = detector(1)
    scores = fitted.score_samples(ROWS)
    fitted.save(tmp_path / "saved")

    def look(i: int) -> bool:
        own = NRFDetector.load(tmp_path / "saved")
        return bool((own.score_samples(ROWS) == scores).all() and (fitted.score_samples(ROWS) == scores).all())

    assert all(at_once(look))
    pytest.importorskip("onnx")
    fitted.export(tmp_path / "graph.onnx")


def test_scores_of_one_detector_with_spectral_norm_in_threads() -> None:
    own = MLPPotential(norm="spectral", widths=(8, 8))
    with DrawsFrom(stream(0, "weights")):
        potential = own.build((3,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = NRFDetector(random_state=0, max_iter=5, potential=potential, verbose=0).fit(ROWS)
    scores, before = fitted.score_samples(ROWS), values(fitted)
    assert all(at_once(lambda i: all((fitted.score_samples(ROWS) == scores).all() for _ in range(20))))
    assert equal(values(fitted), before)


def small(seed: int) -> Preset:
    """A short run: every second one with spectral norm."""
    preset = find_preset("gmm-short")
    if seed % 2:
        preset = replace(preset, potential=MLPPotential(norm="spectral", widths=(8, 8)), learner=SNGANConfig())
    return replace(preset, seed=seed, train=replace(preset.train, iterations=10, batch_size=16))


def test_learners_in_threads() -> None:
    data = torch.from_numpy(ROWS[:, :2].copy())

    def learn(i: int) -> list[Tensor]:
        preset = small(i)
        learner = preset.build(data, preset.seeds)
        Trainer(learner, data, preset.train, [i]).fit(quiet=True)
        return [v for m in learner.modules.values() for v in m.state_dict().values()]

    one_by_one = [learn(i) for i in range(N_THREADS)]
    together = at_once(learn)
    assert [equal(a, b) for a, b in zip(one_by_one, together, strict=True)] == [True] * N_THREADS


def test_baselines_and_features_in_threads() -> None:
    def look(i: int) -> list[Tensor]:
        dagmm = DAGMM(epochs=1, batch_size=32, seed=i, quiet=True).fit(ROWS)
        return [torch.from_numpy(dagmm.score_samples(ROWS))]

    one_by_one = [look(i) for i in range(N_THREADS)]
    assert [equal(a, b) for a, b in zip(one_by_one, at_once(look), strict=True)] == [True] * N_THREADS
    images = np.random.default_rng(0).integers(0, 256, (8, 1, 8, 8)).astype(np.uint8)
    RotationFeatures(width=2, epochs=1, batch_size=8, verbose=0).fit(images)


@pytest.mark.parametrize("norm", ["weight", "spectral"])
def test_a_frozen_module_computes_its_weights_once_and_is_itself_again(norm: str) -> None:
    with DrawsFrom(torch.Generator().manual_seed(0)):
        layer = normalised(nn.Linear(3, 2), norm).train()  # type: ignore[arg-type]
    x = torch.ones(1, 3)
    calls = []
    layer.parametrizations["weight"][0].register_forward_hook(lambda *_: calls.append(1))  # type: ignore[index]
    with frozen(layer):
        first = layer(x)
        with frozen(layer):
            layer(x)
        assert torch.equal(layer(x), first)
        assert len(calls) == 1
        copied, still = copy.deepcopy(layer), Snapshot(layer).copy
        assert torch.equal(still(x), first)
    with torch.no_grad():
        for p in (*layer.parameters(), *copied.parameters()):
            p.add_(1.0)
    assert not torch.equal(layer.eval()(x), first)
    assert torch.equal(copied.eval()(x), layer(x)), "a copy made inside must not keep what was held"


def test_draws_are_those_of_the_global_generator_with_that_seed() -> None:
    def build() -> list[Tensor]:
        parts = [nn.Conv2d(2, 3, 3), normalised(nn.Linear(3, 2), "spectral"), nn.ConvTranspose2d(2, 2, 3)]
        drawn = [v for part in parts for v in part.state_dict().values()]
        return [*drawn, nn.functional.dropout(torch.ones(50, requires_grad=True)).detach()]

    with DrawsFrom(torch.Generator().manual_seed(5)):
        local = build()
        with pytest.raises(TypeError, match="call it with a generator"):
            torch.rand_like(local[0])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        assert equal(local, build())


def test_number_of_threads_after_overlapping_blocks() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        inside, done = Barrier(2), Barrier(2)

        def other() -> tuple[int, int]:
            with one_thread():
                within = torch.get_num_threads()
                inside.wait()  # both are in
                done.wait()  # the first one has left
            return within, torch.get_num_threads()

        with ThreadPoolExecutor(1) as pool:
            with one_thread():
                running = pool.submit(other)
                inside.wait()
            assert torch.get_num_threads() == 2
            done.wait()
            assert running.result() == (1, 2)
        with ThreadPoolExecutor(1) as pool:  # threads begun later start with what there was
            assert pool.submit(torch.get_num_threads).result() == 2
        assert in_threads(lambda part: torch.get_num_threads(), [0, 1, 2]) == [1, 1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
