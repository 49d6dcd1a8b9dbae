"""Progress: the time left in plain words, on terminals of any width and through pipes, and silence where wanted."""

import io

import pytest
from rich.console import Console

from nrf.training import progress
from nrf.training.progress import ProgressBar, duration


class Clock:
    """A monotonic clock that is moved by hand."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def _work(clock, steps, seconds, total=100, **kwargs):
    with ProgressBar("fit", total, **kwargs) as bar:
        for _ in range(steps):
            clock.now += seconds
            bar.advance()


def _on_terminal(monkeypatch, width):
    stream = Terminal()
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=stream, width=width, force_terminal=True))
    return stream


def test_a_pipe_gets_plain_lines_with_the_time_left(capsys, clock):
    _work(clock, 50, 1.0, total=80, piped=True)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0] == "fit 2 %, 78 s left"
    assert lines[1] == "fit 15 %, 68 s left", "one line every ten seconds, not one every step"
    assert lines[-1] == "fit: took 50 s"
    assert len(lines) == 6
    assert all(c.isprintable() for line in lines for c in line), "no control characters"


def test_what_takes_less_than_two_seconds_shows_nothing(capsys, clock, monkeypatch):
    _work(clock, 100, 0.019, piped=True)
    terminal = _on_terminal(monkeypatch, 80)
    _work(clock, 100, 0.019)
    assert capsys.readouterr().err == ""
    assert terminal.getvalue() == ""


def test_a_pipe_gets_nothing_unless_asked_for(capsys, clock):
    _work(clock, 50, 1.0)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("width", [30, 80, 200])
def test_the_time_left_fits_on_every_terminal(monkeypatch, clock, width):
    terminal = _on_terminal(monkeypatch, width)
    with ProgressBar("NRFDetector", 1000) as bar:
        for _ in range(30):
            clock.now += 2.5
            bar.advance()
            bar.show({"u_data": 1.234567, "u_revised": -12.34567, "potential_loss": 123.4567})
    assert "NRFDetector 0 %, 42 min left" in terminal.getvalue()
    assert "NRFDetector: took 75 s" in terminal.getvalue()


def test_quiet_is_silent_on_a_terminal(monkeypatch, clock):
    terminal = _on_terminal(monkeypatch, 80)
    _work(clock, 50, 1.0, quiet=True)
    _work(clock, 50, 1.0, quiet=True, piped=True)
    assert terminal.getvalue() == ""


def test_steps_done_twice_count_for_the_pace(clock):
    with ProgressBar("fit", 100) as bar:
        for _ in range(20):
            clock.now += 1.0
            bar.advance()
        bar.move_to(10)
        assert bar.text() == "fit 10 %, 2 min left"


def test_long_steps_can_be_shown_from_the_beginning(capsys, clock):
    with ProgressBar("cells", 4, piped=True, at_once=True):
        assert capsys.readouterr().err == "cells 0 %\n"


def test_durations_are_in_words():
    assert [duration(s) for s in (0.01, 89, 100, 3600, 5400, 8000)] == [
        "1 s",
        "89 s",
        "2 min",
        "60 min",
        "1 h 30 min",
        "2 h 13 min",
    ]


def test_an_error_is_not_followed_by_a_last_line(capsys, clock):
    bar = ProgressBar("fit", 10, piped=True)
    with bar:
        clock.now += 3
        bar.advance()
        bar.__exit__(KeyError, KeyError(), None)
        assert capsys.readouterr().err == "fit 10 %, 27 s left\n"
