"""Progress of a fit that trains no network: shown at once where it will take long, with the time left."""

import threading

import numpy as np
import pytest

from nrf import NRFDetector
from nrf.detect import fit_progress as progress
from nrf.detect.fit_progress import FitProgress
from nrf.training import progress as bars


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 0.0

    monkeypatch.setattr(bars.time, "monotonic", lambda: Clock.now)
    monkeypatch.setattr(progress, "BEAT", 3600.0)  # the test looks, not the thread
    return Clock


def test_a_long_fit_has_a_line_from_the_beginning(capsys, clock):
    with FitProgress(120_000_000, piped=True) as bar:
        first = capsys.readouterr().err
        clock.now = 3.0
        bar.look()
        assert bar.text() == "NRFDetector 13 %, 18 s left", "no further than where the next stage begins"
        bar.reach("rows")
        clock.now = 4.0
        bar.reach("density")
        assert bar.text() == "NRFDetector 13 %, 21 s left", "the pace of what is done counts"
    assert first == "NRFDetector 0 %, 21 s left\n"
    assert capsys.readouterr().err == "NRFDetector: took 4 s\n"


def test_a_small_table_shows_nothing(capsys, clock):
    with FitProgress(2000, piped=True) as bar:
        clock.now = 1.9
        bar.look()
    assert capsys.readouterr().err == ""


def test_a_small_table_that_takes_long_all_the_same_says_so_after_two_seconds(capsys, clock):
    with FitProgress(2000, piped=True) as bar:
        bar.reach("health")
        clock.now = 2.5
        bar.look()
    assert capsys.readouterr().err.startswith("NRFDetector 100 %, 1 s left")


def test_what_comes_after_training_began_is_not_ours_to_say(capsys, clock):
    with FitProgress(120_000_000, piped=True) as bar:
        bar.leave()
        capsys.readouterr()
        clock.now = 60.0
    assert capsys.readouterr().err == ""


def test_the_detector_goes_through_all_stages_and_leaves_no_thread(monkeypatch):
    reached = []
    monkeypatch.setattr(FitProgress, "reach", lambda self, stage: reached.append(stage))
    NRFDetector(random_state=0, verbose=1).fit(np.random.default_rng(0).normal(size=(60, 2)))
    assert reached == [stage for stage in progress.BEGINS if stage != "columns"]
    assert not [thread for thread in threading.enumerate() if "_beat" in thread.name]


def test_the_thread_draws(monkeypatch, capsys):
    monkeypatch.setattr(progress, "BEAT", 0.001)
    monkeypatch.setattr(bars, "LINE_EVERY", 0.0)
    with FitProgress(120_000_000, piped=True):
        threading.Event().wait(0.2)
    assert len(capsys.readouterr().err.splitlines()) > 3
