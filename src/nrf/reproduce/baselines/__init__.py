"""Detectors that inclusive random fields are compared with: other libraries', and ours where none has a sound one."""

from nrf.reproduce.baselines.alad import ALAD
from nrf.reproduce.baselines.anogan import AnoGAN
from nrf.reproduce.baselines.base import Baseline
from nrf.reproduce.baselines.dagmm import DAGMM
from nrf.reproduce.baselines.deep_svdd import DCAE, DeepSVDD
from nrf.reproduce.baselines.dsebm import DSEBM
from nrf.reproduce.baselines.registry import BASELINES, find_baseline, has_epochs, shortened, stored_as, with_epochs
from nrf.reproduce.baselines.trial import Scored, fit_and_score

__all__ = [
    "ALAD",
    "BASELINES",
    "DAGMM",
    "DCAE",
    "DSEBM",
    "AnoGAN",
    "Baseline",
    "DeepSVDD",
    "Scored",
    "find_baseline",
    "fit_and_score",
    "has_epochs",
    "shortened",
    "stored_as",
    "with_epochs",
]
