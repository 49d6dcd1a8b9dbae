"""Training a preset in a run folder, from the start or from where it was stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from nrf.config import differences, from_json, to_json
from nrf.data import Splits
from nrf.errors import CheckpointError, InputError, MissingPackageError
from nrf.files import require_folder
from nrf.ranks import Ranks
from nrf.runs.held_out import choose_by, start_over
from nrf.runs.spec import Preset, load_splits
from nrf.seeds import require_seed
from nrf.training import RunFolder, Trainer, use_threads

if TYPE_CHECKING:
    from nrf.runs.pictures import Pictures

CHANGEABLE = (
    "train.iterations",
    "train.epochs",
    "train.log_every",
    "train.checkpoint_every",
    "train.keep",
    "train.sample_every",
    "data.path",
)
"""Settings that may change when a run is resumed."""


def stored_preset(folder: Path | str) -> tuple[str, Preset]:
    """Name and preset of the run in a folder.

    Args:
        folder: The run folder.

    Raises:
        CheckpointError: The folder holds no run, or one that this version cannot read.
    """
    run = RunFolder(folder)
    description = run.describe()
    try:
        return str(description["preset"]), from_json(Preset, description["config"])
    except (KeyError, InputError) as error:
        raise CheckpointError(f"{run.config_path}: cannot be read by this version: {error}") from error


def train(
    name: str,
    preset: Preset,
    out: Path | str,
    *,
    resume: bool = False,
    device: str = "cpu",
    quiet: bool = False,
    splits: Splits | None = None,
    on_log: Callable[[Trainer, Mapping[str, float]], object] | None = None,
) -> Trainer:
    """Train a preset in a folder; the returned trainer's ``step`` says how far it came.

    Args:
        name: The preset's name, for the record.
        preset: What to train.
        out: The run folder.
        resume: Continue the run in the folder, if there is one.
        device: Where to compute.
        quiet: No progress bar.
        splits: The data, if the caller has them already.
        on_log: Called with the trainer and the metrics of each logged line; returning True stops training there.

    Returns:
        The trainer, after its last iteration or where it was asked to stop.

    Raises:
        InputError: The folder holds another run, or settings cannot work.
        NonFiniteError: A loss or sample became NaN or infinite.
    """
    if preset.train.iterations == 0:
        raise InputError("a run needs at least one iteration; raise train.iterations")
    folder = RunFolder(out)
    require_folder(folder.path)
    ranks = Ranks.of_environment(device)
    with folder.locked() if ranks.leads else nullcontext():
        return _train(name, preset, folder, ranks, resume, device, quiet, splits, on_log)


def _train(
    name: str,
    preset: Preset,
    folder: RunFolder,
    ranks: Ranks,
    resume: bool,
    device: str,
    quiet: bool,
    splits: Splits | None,
    on_log: Callable[[Trainer, Mapping[str, float]], object] | None,
) -> Trainer:
    description = {"preset": name, "config": to_json(preset)}
    goes_on = ranks.any(ranks.leads and _require_same_run(folder, description, resume=resume))
    if not goes_on:
        require_seed(preset.seeds[0])
        require_seed(preset.seeds[-1], "the seed of the last replica")
    splits = load_splits(preset.data) if splits is None else splits
    use_threads(preset.train.threads)
    data = torch.from_numpy(splits.train).to(_device(ranks.device_of(device)))
    learner = preset.build(data, preset.seeds)
    stored = description | {"event_shape": list(splits.event_shape)}
    trainer = Trainer(learner, data, preset.train, preset.seeds, folder, stored, ranks, choose_by(preset, data))
    pictures = _pictures(preset, folder, splits) if preset.train.sample_every and ranks.leads else None
    if ranks.leads:
        folder.write_description(description)
    if goes_on:
        trainer.resume()
        start_over(trainer)

    def logged(trainer: Trainer, row: Mapping[str, float]) -> bool:
        if pictures is not None:
            pictures.draw(trainer)
        return on_log is not None and on_log(trainer, row) is True

    trainer.fit(quiet=quiet or not ranks.leads, label=name, on_log=logged)
    return trainer


def _pictures(preset: Preset, folder: RunFolder, splits: Splits) -> Pictures:
    """The object that draws samples while training, which needs a package that training does not."""
    try:
        from nrf.runs.pictures import Pictures
    except MissingPackageError as error:
        raise InputError(f"{error}, or train without pictures: --train.sample-every None") from error
    return Pictures(preset, folder, splits.event_shape)


def _require_same_run(folder: RunFolder, description: dict[str, Any], *, resume: bool) -> bool:
    """Whether there is a run to go on with; an error if it is not this one. Nothing is written here."""
    if not folder.exists():
        return False
    if not resume:
        raise InputError(f"{folder.path} already holds a run; add --resume to go on with it, or choose another --out")
    name, preset = stored_preset(folder.path)
    stored, config = to_json(preset), description["config"]  # read and written again, to have fields newer than the run
    if name != description["preset"]:
        raise InputError(f"{folder.path} holds a run of preset {name!r}, not {description['preset']!r}")
    changeable = set(CHANGEABLE)
    if config["train"]["lr_final"] < 1:  # the schedule depends on the length
        changeable -= {"train.iterations", "train.epochs"}
    fixed = {k: v for k, v in differences(stored, config).items() if k not in changeable}
    if fixed:
        what = ", ".join(f"{k} was {old!r}, now {new!r}" for k, (old, new) in fixed.items())
        raise InputError(f"{folder.path} cannot be resumed with other settings: {what}; choose another --out")
    return True


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {name!r} cannot be used here ({reason}); try --device cpu") from error
    return device
