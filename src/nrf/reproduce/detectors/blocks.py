"""Further tables of the comparison: real ones, mixed ones, short and wide ones. Each block lists its own systems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nrf.data import folder_of, real_tables
from nrf.reproduce.baselines import find_baseline, shortened, stored_as
from nrf.reproduce.baselines.ours import NRF
from nrf.reproduce.detectors.cells import block_cell
from nrf.reproduce.detectors.mixed_tables import MIXED, mixed_task
from nrf.reproduce.detectors.sets import Floats, Task
from nrf.reproduce.detectors.wide_curves import CURVES, curves_task
from nrf.reproduce.runner.board import Place
from nrf.reproduce.runner.experiment import Cell, Results, cell_name
from nrf.seeds import derive

REAL, MIX, WIDE = "real tables", "mixed tables", "short and wide"


@dataclass(frozen=True)
class BlockConfig:
    """Which systems on which tables of a kind, and how often."""

    name: str
    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int = 5
    slow: tuple[str, ...] = ()
    """Expensive systems, which have fewer seeds."""
    slow_seeds: int = 2
    large: tuple[str, ...] = ()
    """Large tables, which have fewer seeds."""
    large_seeds: int = 1
    max_rows: int | None = None
    """Maximum number of rows of each part of a table."""
    short: bool = False
    """Train for a few steps only, to see that everything works."""

    def seeds_of(self, dataset: str, method: str) -> range:
        """The seeds of one system on one table."""
        n = min(self.seeds, self.slow_seeds) if method in self.slow else self.seeds
        return range(min(n, self.large_seeds) if dataset in self.large else n)


def real_task(name: str, seed: int) -> Task:
    """A random half of the normal rows trains; the other half and all anomalies test."""
    table = real_tables.read(folder_of("tables"), name)
    rows = table.rows.astype(np.float64)
    normal = np.random.default_rng(derive(seed, REAL, name)).permutation(np.flatnonzero(table.labels == 0))
    train, tested = np.split(normal, [len(normal) // 2])
    return Task(name, rows[train], rows[tested], rows[table.labels == 1])


TASKS: dict[str, Callable[[str, int], Task]] = {REAL: real_task, MIX: mixed_task, WIDE: curves_task}
"""How the tables of a block are made, by its name."""

DEEP = ("Deep SVDD", "autoencoder", "LUNAR", "ALAD", "ALAD (PyOD)", "DTE-C")
NEIGHBOURS = ("1-NN", "5-NN")
MEAN_OF_FIVE = "DTE-NP"
BLOCKS = (
    BlockConfig(
        REAL,
        tuple(real_tables.TABLES),
        (
            "NRF",
            "untrained NRF",
            *NEIGHBOURS,
            MEAN_OF_FIVE,
            "kernel, likely width",
            "kernel density",
            "LOF",
            "isolation forest",
            "one-class SVM",
            "ECOD",
            *DEEP,
        ),
        slow=DEEP,
    ),
    BlockConfig(MIX, tuple(MIXED), ("NRF", *NEIGHBOURS, "isolation forest", "LOF"), large=("flights",)),
    BlockConfig(WIDE, tuple(CURVES), ("NRF", *NEIGHBOURS, "kernel, likely width", "LOF", "isolation forest")),
)


def line(block: str, method: str) -> str:
    """What `--lines` picks by.

    Example:
        >>> line("real tables", "LOF")
        'real tables: LOF'
    """
    return f"{block}: {method}"


def cells_of(block: BlockConfig, defaults: Mapping[str, object]) -> list[Cell]:
    """Seed by seed; systems that cost much come last."""
    systems = {method: find_baseline(method) for method in block.methods}
    for system in systems.values():
        system.require()
    if block.short:
        systems = {method: shortened(system) for method, system in systems.items()}
    found = [
        Cell(
            name(block, dataset, method, seed),
            block_cell,
            {"system": systems[method], "block": block.name, "dataset": dataset, "seed": seed}
            | {"max_rows": block.max_rows},
            defaults if isinstance(systems[method], NRF) else {},
            place=Place(line(block.name, method), None, seed),
        )
        for seed in range(block.seeds)
        for dataset in block.datasets
        for method in block.methods
        if seed in block.seeds_of(dataset, method)
    ]
    return sorted(found, key=lambda cell: cell.place is not None and cell.place.line in _slow_lines(block))


def _slow_lines(block: BlockConfig) -> set[str]:
    return {line(block.name, method) for method in block.slow}


def name(block: BlockConfig, dataset: str, method: str, seed: int) -> str:
    """Name of a cell."""
    return cell_name(block.name, seed, dataset, stored_as(method))


class BlockResults:
    """The results of a block so far, for systems with at least one seed on all tables."""

    def __init__(self, block: BlockConfig, results: Results) -> None:
        self.block, self.results = block, results
        self.seeds = {method: self._whole_seeds(method) for method in block.methods}
        self.methods = [
            method
            for method in block.methods
            if all(set(self.seeds[method]) & set(block.seeds_of(dataset, method)) for dataset in block.datasets)
        ]

    def _whole_seeds(self, method: str) -> list[int]:
        """Seeds for which no table is missing."""
        block = self.block
        return [
            seed
            for seed in range(block.seeds)
            if any(seed in block.seeds_of(dataset, method) for dataset in block.datasets)
            and all(
                name(block, dataset, method, seed) in self.results
                for dataset in block.datasets
                if seed in block.seeds_of(dataset, method)
            )
        ]

    def values(self, dataset: str, method: str, number: str, seeds: Sequence[int] | None = None) -> Floats:
        """One number of a system on a table, for each seed."""
        wanted = self.seeds[method] if seeds is None else seeds
        kept = [seed for seed in wanted if seed in self.block.seeds_of(dataset, method)]
        return np.array([self.results[name(self.block, dataset, method, seed)][number] for seed in kept])

    def means(self, number: str) -> Floats:
        """Means over seeds, ``(tables, systems)``."""
        return np.array([[self.values(d, m, number).mean() for m in self.methods] for d in self.block.datasets])

    def over_tables(self, method: str, number: str) -> Floats:
        """The mean over tables, for each seed that all tables have."""
        seeds = [s for s in self.seeds[method] if all(s in self.block.seeds_of(d, method) for d in self.block.datasets)]
        return np.asarray(np.mean([self.values(d, method, number, seeds) for d in self.block.datasets], axis=0))

    def behind(self, method: str, margin: float) -> int | None:
        """On how many tables a system is more than a margin below the best neighbour method, on the same seeds."""
        rivals = [rival for rival in (*NEIGHBOURS, MEAN_OF_FIVE) if rival in self.block.methods]
        seeds = [seed for seed in self.seeds[method] if all(seed in self.seeds[rival] for rival in rivals)]
        if not rivals or any(rival not in self.methods for rival in rivals) or not seeds:
            return None
        count = 0
        for dataset in self.block.datasets:
            best = max(float(self.values(dataset, rival, "auroc", seeds).mean()) for rival in rivals)
            count += float(self.values(dataset, method, "auroc", seeds).mean()) < best - margin
        return count
