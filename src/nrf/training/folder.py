"""The run folder: ``config.json``, ``metrics.jsonl`` and ``checkpoints/``."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nrf.errors import CheckpointError, printable
from nrf.files import locked, sweep, write_atomically
from nrf.training import checkpoint as ckpt

log = logging.getLogger(__name__)


class RunFolder:
    """Paths and small files of one run; the checkpoint module reads and writes tensors.

    Args:
        path: The run folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = path = Path(path)
        self.config_path = path / "config.json"
        self.metrics_path = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"

    def exists(self) -> bool:
        """Whether a run was started here."""
        return self.config_path.is_file()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for writing; files that a kill left half-written are removed first."""
        with locked(self.path):
            sweep(self.checkpoints, alone=True)
            yield

    def write_description(self, description: dict[str, Any]) -> None:
        """Write ``config.json``: the description that the run is built from, and versions of software."""
        text = json.dumps({**description, "versions": ckpt.versions()}, indent=2, allow_nan=False)
        write_atomically(self.config_path, (text + "\n").encode())

    def describe(self) -> dict[str, Any]:
        """Read the description from ``config.json``."""
        if not self.exists():
            raise CheckpointError(f"{self.path} is not a run folder: it has no config.json (`nrf train` makes one)")
        try:
            description = json.loads(self.config_path.read_text())
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"{self.config_path}: not valid JSON ({error})") from error
        if not isinstance(description, dict):
            raise CheckpointError(f"{self.config_path}: not the description of a run")
        return description

    def checkpoint_path(self, step: int) -> Path:
        """Path of the checkpoint of a step."""
        return self.checkpoints / f"step-{step:09d}.safetensors"

    def checkpoint_paths(self) -> list[Path]:
        """Paths of all complete checkpoints, oldest first."""
        return sorted(self.checkpoints.glob("step-*.safetensors"))

    def steps(self) -> list[int]:
        """The steps that have a checkpoint."""
        return [int(path.stem.removeprefix("step-")) for path in self.checkpoint_paths()]

    def latest(self) -> Path | None:
        """The newest checkpoint, if there is one."""
        return next(reversed(self.checkpoint_paths()), None)

    def newest(self, *, set_aside: bool = False) -> tuple[Path, ckpt.Checkpoint] | None:
        """The newest checkpoint that is not damaged, with its path; None if there is none at all.

        Damaged ones are skipped with a warning. If there are only damaged ones, that is an error.

        Args:
            set_aside: Rename damaged ones, so that they are not taken for checkpoints again.
        """
        damaged: ckpt.DamagedError | None = None
        for path in reversed(self.checkpoint_paths()):
            try:
                found = path, ckpt.require_run(ckpt.read(path), path)
            except ckpt.DamagedError as error:
                log.warning("%s", printable(f"{error}; taking the checkpoint before it"))
                damaged = damaged or error
                continue
            if set_aside:
                for later in self.checkpoint_paths():
                    if later > path:
                        later.rename(later.with_name(later.name + ".damaged"))
            return found
        if damaged is not None:
            raise CheckpointError(f"{damaged}; no checkpoint in {self.checkpoints} is whole: train again") from damaged
        return None

    def prune(self, keep: int) -> None:
        """Keep the newest ``keep`` checkpoints."""
        for old in self.checkpoint_paths()[:-keep]:
            old.unlink()

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Append one line of metrics, as JSON."""
        with self.metrics_path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All complete lines of metrics. A kill may cut off the last one; other damaged ones are named in a warning."""
        if not self.metrics_path.is_file():
            return []
        rows = []
        *lines, cut = self.metrics_path.read_bytes().split(b"\n")
        for number, line in enumerate([*lines, cut], start=1):
            row = _metrics_row(line)
            if row is not None:
                rows.append(row)
            elif number <= len(lines):
                log.warning("%s", printable(f"{self.metrics_path}: line {number} is damaged and left out"))
        return rows

    def rewind_metrics(self, step: int) -> None:
        """Drop lines written after a step: the resumed run writes them again."""
        kept = [row for row in self.metrics() if row["step"] <= step]
        write_atomically(self.metrics_path, "".join(json.dumps(row) + "\n" for row in kept).encode())


def _metrics_row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    counts = isinstance(row, dict) and isinstance(row.get("step"), int) and not isinstance(row["step"], bool)
    return row if counts else None
