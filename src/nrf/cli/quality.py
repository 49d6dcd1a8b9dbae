"""`nrf quality`: scores of what a run generates."""

from __future__ import annotations

import json
from pathlib import Path

from nrf.cli.parsing import Folder
from nrf.errors import InputError


def quality(
    folder: Folder,
    /,
    *,
    samples: int = 5000,
    revise: bool = False,
    averaged: bool = False,
    against_training: bool = False,
    inception_weights: Path | None = None,
    out: Path | None = None,
    seed: int = 0,
) -> int:
    """Score what a model of CIFAR-10 generates: inception score, Fréchet distance, precision and recall.

    Without Inception's weights the features are those of a small classifier that the project trains once, about half
    an hour on two cores, and keeps in its cache. Such scores carry the mark -c10; compare them among themselves only.

    Args:
        folder: Folder of the run.
        samples: Images to draw.
        revise: Revise them with the sampler of the training.
        averaged: Use the averaged weights.
        against_training: The Fréchet distance to the training images as well; give --samples 50000 then.
        inception_weights: File of Inception's weights, the one that torch-fidelity uses.
        out: Where to write the scores as JSON.
        seed: Seed of the draw.
    """
    import numpy as np

    from nrf.data import resolve
    from nrf.experiments.judge import judge
    from nrf.experiments.trained import Trained

    if out is not None and out.suffix != ".json":
        raise InputError(f"{out}: the name must end in .json")
    if samples < 20:
        raise InputError(f"scores need at least 20 samples, got {samples}")
    trained = Trained.load(folder, averaged=averaged)
    if trained.event_shape != (3, 32, 32):
        raise InputError(f"{folder} generates events of shape {trained.event_shape}; scores are of CIFAR-10's images")
    by = judge(resolve("cifar10"), inception_weights, quiet=False)
    images = np.clip(trained.sample(samples, seed=seed, revise=revise)[0], -1, 1)
    found = by.scores(images) | by.precision_recall(images)
    if against_training:
        found |= by.against_training(images)
    for name, value in found.items():
        print(f"{name:28} {value:.4g}")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"step": trained.step, "samples": samples, "revised": revise, **found}, indent=1))
        print(f"scores: {out}")
    return 0
