"""The training loop, its run folder and its checkpoints."""

from __future__ import annotations

from nrf.training.batches import set_aside
from nrf.training.folder import RunFolder
from nrf.training.process import use_threads
from nrf.training.progress import ProgressBar
from nrf.training.trainer import TrainConfig, Trainer

__all__ = ["ProgressBar", "RunFolder", "TrainConfig", "Trainer", "set_aside", "use_threads"]
