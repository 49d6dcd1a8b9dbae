"""`nrf quality`: scores of what a run generates."""

from __future__ import annotations

import json
from pathlib import Path

from nrf.cli.parsing import Folder, say
from nrf.errors import InputError
from nrf.files import require_output, write_atomically


def quality(
    folder: Folder,
    /,
    *,
    samples: int = 5000,
    draws: int = 10,
    revise: bool = False,
    averaged: bool = False,
    against_training: bool = False,
    inception_weights: Path | None = None,
    out: Path | None = None,
    seed: int = 0,
) -> int:
    """Score what a model of CIFAR-10 generates: inception score, Fréchet distance, precision and recall.

    Without Inception's weights the features are those of a small classifier that the project trains once, in ten
    minutes or more of one core, and keeps in its cache. Such scores carry the suffix -c10; compare them only with each
    other.

    Example: nrf quality runs/cifar --draws 1 --out scores.json

    Args:
        folder: Folder of the run.
        samples: Images per draw.
        draws: Number of draws. The inception score is given as mean and standard deviation over them; Fréchet distance,
            precision and recall use the first. 10 draws of 5,000 images are the paper's protocol, 1 draw is a tenth of
            it.
        revise: Revise the images with the sampler of the training.
        averaged: Use the averaged weights.
        against_training: Also give the Fréchet distance of all draws to the training images.
        inception_weights: File of Inception's weights, the one that torch-fidelity uses.
        out: Where to write the scores as JSON.
        seed: Seed of the draw.
    """
    import numpy as np

    from nrf.data import resolve
    from nrf.runs.image_scorer import cifar10_scorer
    from nrf.runs.trained import TrainedModel
    from nrf.seeds import require_seed

    if out is not None:
        require_output(out, ".json")
    require_seed(seed)
    if samples < 20 or draws < 1:
        raise InputError(f"scores need at least 20 samples and 1 draw, got {samples} and {draws}")
    trained = TrainedModel.load(folder, averaged=averaged)
    if trained.event_shape != (3, 32, 32):
        raise InputError(f"{folder} generates events of shape {trained.event_shape}; scores are of CIFAR-10's images")
    scorer = cifar10_scorer(resolve("cifar10"), inception_weights, quiet=False)
    seen = scorer.extract(np.clip(trained.sample(draws * samples, seed=seed, revise=revise)[0], -1, 1))
    found = scorer.scores(seen, draws) | scorer.precision_recall(seen[:samples])
    if against_training:
        found |= scorer.against_training(seen)
    for name, value in found.items():
        say(f"{name:28} {value:.4g}")
    if out is not None:
        about = {"step": trained.step, "samples": samples, "draws": draws, "revised": revise}
        write_atomically(out, json.dumps(about | found, indent=1).encode())
        say(f"scores: {out}")
    return 0
