"""The run folder: ``config.json``, ``metrics.jsonl`` and ``checkpoints/``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nrf.errors import CheckpointError
from nrf.training.checkpoint import versions, write_atomically


class RunFolder:
    """Paths and small files of one run; tensors are the checkpoint module's business."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config_path = path / "config.json"
        self.metrics_path = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"

    def exists(self) -> bool:
        """Whether a run was started here."""
        return self.config_path.is_file()

    def write_description(self, description: dict[str, Any]) -> None:
        """Keep what the run is made from where people look for it."""
        text = json.dumps({**description, "versions": versions()}, indent=2, allow_nan=False)
        write_atomically(self.config_path, (text + "\n").encode())

    def describe(self) -> dict[str, Any]:
        """What was written there."""
        if not self.exists():
            raise CheckpointError(f"{self.path} is not a run folder: it has no config.json (`nrf train` makes one)")
        try:
            description = json.loads(self.config_path.read_text())
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{self.config_path}: not valid JSON ({error})") from error
        if not isinstance(description, dict):
            raise CheckpointError(f"{self.config_path}: not the description of a run")
        return description

    def checkpoint_path(self, step: int) -> Path:
        """Where the checkpoint of a step lies."""
        return self.checkpoints / f"step-{step:09d}.safetensors"

    def checkpoint_paths(self) -> list[Path]:
        """All whole checkpoints, oldest first."""
        return sorted(self.checkpoints.glob("step-*.safetensors"))

    def steps(self) -> list[int]:
        """The steps of which there is a checkpoint."""
        return [int(path.stem.removeprefix("step-")) for path in self.checkpoint_paths()]

    def latest(self) -> Path | None:
        """The newest checkpoint, if there is one."""
        return next(reversed(self.checkpoint_paths()), None)

    def prune(self, keep: int) -> None:
        """Keep the newest ``keep`` checkpoints; also sweep what a kill left half-written."""
        for old in self.checkpoint_paths()[:-keep]:
            old.unlink()
        for folder in (self.path, self.checkpoints):
            for partial in folder.glob(".partial-*"):
                partial.unlink()

    def append_metrics(self, row: dict[str, Any]) -> None:
        """One line of JSON."""
        with self.metrics_path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """All whole lines; a kill may have left the last one cut."""
        if not self.metrics_path.is_file():
            return []
        rows = []
        for line in self.metrics_path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return rows

    def rewind_metrics(self, step: int) -> None:
        """Drop lines written after a step: the resumed run writes them again."""
        kept = [row for row in self.metrics() if row["step"] <= step]
        write_atomically(self.metrics_path, "".join(json.dumps(row) + "\n" for row in kept).encode())
