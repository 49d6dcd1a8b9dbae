"""`nrf sample`, `revise`, `score`, `density` and `interpolate`: commands for a trained model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nrf.cli.parsing import Folder, Input, say
from nrf.errors import InputError
from nrf.files import replaced, require_output, write_atomically

if TYPE_CHECKING:
    from nrf.fields import Integral

UNSURE = 0.5
"""The standard error of importance sampling, in nats, above which the tail of its weights was not sampled."""


def sample(
    folder: Folder,
    /,
    *,
    out: Path,
    n: int = 1000,
    revise: bool = False,
    steps: int | None = None,
    temperature: float | None = None,
    step_size: float | None = None,
    averaged: bool = False,
    replica: int = 0,
    seed: int = 0,
    sampler: Any = None,
) -> int:
    """Draw samples from a trained model.

    Example: nrf sample runs/g --n 1000 --revise --out samples.npz

    Args:
        folder: Folder of the run.
        out: Where to write: .npz (arrays x and h; h has no columns where no generator was trained) or .png.
        n: Number of samples.
        revise: Revise them with the sampler of the training; down the noise levels, where the potential has any.
        steps: Revision steps, at each level if there are levels, instead of those of the training.
        temperature: Temperature of the revision, instead of that of the training.
        step_size: Step size of the revision, instead of that of the training.
        averaged: Use the averaged weights.
        replica: Which model of a run with --replicas, from 0.
        seed: Seed of the draw.
        sampler: Another sampler for the revision, with settings of its own: `sampler:mala`.
    """
    from nrf.runs.trained import TrainedModel

    require_output(out, ".npz", ".png")
    if not revise and any(given is not None for given in (steps, temperature, step_size, sampler)):
        raise InputError("--steps, --temperature, --step-size and sampler: are about the revision; add --revise")
    trained = TrainedModel.load(folder, averaged=averaged, replica=replica)
    told: list[Mapping[str, Any]] = []
    x, h = trained.sample(
        n,
        seed=seed,
        revise=revise,
        sampler=sampler,
        n_steps=steps,
        temperature=temperature,
        step_size=step_size,
        on_revised=told.append,
    )
    if out.suffix == ".npz":
        _write_npz(out, x=x, h=h)
    else:
        _draw(trained.preset.data.name, x, out)
    how = "generated" if not revise else "revised" if trained.has_generator else "annealed"
    say(f"{n} {how} samples{_means(told)}: {out}")
    return 0


def revise(
    folder: Folder,
    input: Input,
    /,
    *,
    out: Path,
    steps: int | None = None,
    temperature: float | None = None,
    step_size: float | None = None,
    start_level: int = 0,
    averaged: bool = False,
    replica: int = 0,
    seed: int = 0,
    sampler: Any = None,
) -> int:
    """Pull given rows towards what the model finds typical.

    Example: nrf revise runs/g rows.csv --steps 20 --out revised.npz

    Args:
        folder: Folder of the run.
        input: Rows to revise: .npz, .npy, .csv or .txt, in the units the model was trained in.
        out: Where to write: .npz (arrays x, before, u and u_before) or .png.
        steps: Revision steps, instead of those of the training.
        temperature: Temperature, instead of that of the training.
        step_size: Step size, instead of that of the training.
        start_level: For a field with noise levels: the level to begin at. -1 is the widest, which keeps least of a row.
        averaged: Use the averaged weights.
        replica: Which model of a run with --replicas, from 0.
        seed: Seed of the noise.
        sampler: Another sampler than that of the training, with settings of its own: `sampler:mala`.
    """
    from nrf.data import read_array
    from nrf.runs.trained import TrainedModel

    require_output(out, ".npz", ".png")
    trained = TrainedModel.load(folder, averaged=averaged, replica=replica)
    before = read_array(input, trained.event_shape)
    told: list[Mapping[str, Any]] = []
    x = trained.revise(
        before,
        seed=seed,
        sampler=sampler,
        n_steps=steps,
        temperature=temperature,
        step_size=step_size,
        start_level=start_level,
        on_revised=told.append,
    )
    u_before, u = trained.score_samples(before), trained.score_samples(x)
    if out.suffix == ".npz":
        _write_npz(out, x=x, before=before, u_before=u_before, u=u)
    else:
        _draw(trained.preset.data.name, x, out)
    say(f"{len(x)} rows revised{_means(told)}, mean potential {u_before.mean():.4g} → {u.mean():.4g}: {out}")
    return 0


def score(
    folder: Folder,
    input: Input,
    /,
    *,
    out: Path,
    log_density: bool = False,
    averaged: bool = False,
    replica: int = 0,
) -> int:
    """Score rows by their potential or log-density: high = normal, low = anomalous.

    Example: nrf score runs/g rows.csv --out scores.csv

    Args:
        folder: Folder of the run.
        input: Rows to score: .npz, .npy, .csv or .txt, in the units the model was trained in.
        out: Where to write: .csv (row, and potential or log_density), .npy or .npz (array u or log_density).
        log_density: The log-density in nats, of a model of the learner `levels` or around a reference; `nrf density`
            checks it.
        averaged: Use the averaged weights.
        replica: Which model of a run with --replicas, from 0.
    """
    import numpy as np

    from nrf.data import read_array
    from nrf.runs.trained import TrainedModel

    require_output(out, ".csv", ".npy", ".npz")
    trained = TrainedModel.load(folder, averaged=averaged, replica=replica)
    rows = read_array(input, trained.event_shape)
    values = trained.log_density(rows) if log_density else trained.score_samples(rows)
    if out.suffix == ".csv":
        column = "log_density" if log_density else "potential"
        lines = [f"row,{column}", *(f"{i},{float(v):.9g}" for i, v in enumerate(values, start=1))]
        write_atomically(out, ("\n".join(lines) + "\n").encode())
    elif out.suffix == ".npy":
        with replaced(out) as partial:
            np.save(partial, values)
    else:
        _write_npz(out, **{"log_density" if log_density else "u": values})
    spread = f"{values.min():.4g} … {values.max():.4g}"
    what = f"log-density {spread} nats, mean {values.mean():.4g}" if log_density else f"potential {spread}"
    say(f"{len(values)} rows scored, {what}: {out}")
    return 0


def density(
    folder: Folder,
    /,
    *,
    chains: int = 500,
    between: int = 10,
    moves: int = 2,
    averaged: bool = False,
    replica: int = 0,
    seed: int = 0,
) -> int:
    """Check the log-density of a trained model: its integral should be 1.

    Example: nrf density runs/field --chains 500

    Args:
        folder: Folder of a run of the learner `levels`, or of a field around a reference.
        chains: Independent chains of annealed importance sampling.
        between: Intermediate densities of a chain between two noise levels.
        moves: Moves of a chain at each density.
        averaged: Use the averaged weights.
        replica: Which model of a run with --replicas, from 0.
        seed: Seed of the chains.
    """
    from nrf.runs.trained import TrainedModel

    trained = TrainedModel.load(folder, averaged=averaged, replica=replica)
    found = trained.normaliser(seed=seed, n_chains=chains, n_between=between, n_moves=moves)
    if found.quadrature is not None:
        say(f"integral by quadrature: {found.quadrature.value:.4g}, its log {found.quadrature.log_value:+.4f} nats")
    annealed, drawn = found.annealed, found.importance
    if annealed is not None:
        say(f"integral by annealed importance sampling, {chains} chains: {_with_error(annealed)}")
        if annealed.standard_error > UNSURE:
            say("that standard error is too large to be trusted; take more of --between, --moves or --chains")
    if drawn is not None:
        say(f"integral by importance sampling from the reference: {_with_error(drawn)}")
        if drawn.standard_error > UNSURE:
            say("that standard error is too large to be trusted; the field is far from its reference")
    return 0


def interpolate(
    folder: Folder,
    /,
    *,
    out: Path,
    pairs: int = 8,
    steps: int = 10,
    averaged: bool = False,
    replica: int = 0,
    seed: int = 0,
) -> int:
    """Draw generated samples for codes on straight lines between pairs of random codes.

    Example: nrf interpolate runs/g --out lines.png

    Args:
        folder: Folder of the run.
        out: Where to write the .png: a row for each pair, or paths for two-dimensional data.
        pairs: Number of pairs.
        steps: Codes on each line, ends included.
        averaged: Use the averaged weights.
        replica: Which model of a run with --replicas, from 0.
        seed: Seed of the codes.
    """
    from nrf import figures
    from nrf.runs.trained import TrainedModel

    require_output(out, ".png")
    trained = TrainedModel.load(folder, averaged=averaged, replica=replica)
    events = trained.interpolate(pairs, steps, seed=seed)
    if trained.event_shape == (2,):
        figure = figures.paths(events, trained.sample(2000, seed=seed)[0])
    else:
        figure = figures.image_grid(figures.as_images(trained.preset.data.name, events))
    figures.save(figure, out)
    say(f"{pairs} interpolations of {steps} steps: {out}")
    return 0


def _with_error(integral: Integral) -> str:
    return f"{integral.value:.4g}, its log {integral.log_value:+.4f} ± {integral.standard_error:.4f} nats"


def _means(told: list[Mapping[str, Any]]) -> str:
    """The means of a sampler's diagnostics over chunks, in words: ``, acceptance 0.87``."""
    names = list(told[0]) if told else []
    return "".join(f", {name} {sum(float(t[name]) for t in told) / len(told):.3g}" for name in names)


def _write_npz(path: Path, **arrays: Any) -> None:
    import numpy as np

    with replaced(path) as partial:
        np.savez_compressed(partial, **arrays)


def _draw(dataset: str, x: Any, out: Path) -> None:
    """Points if they have two dimensions, else a square of images."""
    from nrf import figures

    if x.shape[1:] == (2,):
        figures.save(figures.points({"samples": x}), out)
        return
    side = min(int(len(x) ** 0.5), 16)  # with more than 256, too small to see
    if side * side < len(x):
        say(f"the first {side * side} are drawn; .npz holds all")
    images = figures.as_images(dataset, x[: side * side])
    figures.save(figures.image_grid(images.reshape(side, side, *images.shape[1:])), out)
