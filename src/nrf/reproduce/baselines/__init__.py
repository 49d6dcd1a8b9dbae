"""Detectors that inclusive random fields are compared with, where no library has a sound one."""

from nrf.reproduce.baselines.base import Baseline
from nrf.reproduce.baselines.dagmm import DAGMM
from nrf.reproduce.baselines.dsebm import DSEBM
from nrf.reproduce.baselines.images import DCAE, DeepSVDD

__all__ = ["DAGMM", "DCAE", "DSEBM", "Baseline", "DeepSVDD"]
