"""The help of every command has an example that the command itself can read."""

from __future__ import annotations

import re
import shlex

import pytest

from nrf.cli import main
from nrf.cli.detect import ACTIONS
from nrf.cli.main import COMMANDS

EVERY = ["train gmm-short", *COMMANDS, *(f"detect {action}" for action in ACTIONS)]


@pytest.mark.parametrize("command", EVERY)
def test_the_help_of_a_command_has_an_example_with_options_that_it_knows(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as end:
        main([*command.split(), "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    (example,) = re.findall(r"^Example: (nrf .*)$", text, flags=re.MULTILINE)
    assert example.startswith(f"nrf {command} ")
    options = [word.partition("=")[0] for word in shlex.split(example) if re.match(r"--[a-z]", word)]
    known = set(re.findall(r"--[a-z][\w.-]*", text.replace(example, "")))
    assert set(options) <= known
    assert "{None}|" not in text or command == "train gmm-short"  # the fields of a preset can be emptied
