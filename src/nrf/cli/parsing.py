"""Parse arguments by typed functions with tyro, and report every mistake in one line."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import sys
from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, TypeVar, Union

import tyro

from nrf.errors import InputError, printable

T = TypeVar("T")

Folder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
Input = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="INPUT")]

FRAME = " │─╭╮╰╯-"
"""Characters that boxes are drawn with; where the output is not UTF-8, blanks and dashes."""

LISTS = ("--id", "--drop", "--keep", "--categorical", "--missing", "--columns")
"""Options that take several values."""

STOPPED = 130
"""Exit code of a run that was asked to stop, as in shells."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM in a command that keeps work; says what is kept, and how to go on."""


def say(text: str = "") -> None:
    """Print text with control characters escaped: names and values from files can hold anything."""
    print(printable(text), flush=True)


def say_old(old: str, new: str) -> None:
    """Say on standard error, apart from results, what a command or an option is called now."""
    print(f"nrf: {old} is deprecated: use {new}", file=sys.stderr, flush=True)


def in_new_names(arguments: list[str], renamed: Mapping[str, str]) -> list[str]:
    """Arguments with renamed options under their new names; each renaming is reported."""
    found = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in renamed:
            say_old(name, renamed[name])
        found.append(f"{renamed.get(name, name)}{equals}{value}")
    return found


def parse(function: Callable[..., int], arguments: list[str], prog: str, *config: Any) -> Callable[[], int]:
    """Parse the arguments now and call the function later, so that errors in them do not mix with its output."""
    for option in LISTS:
        if sum(a == option or a.startswith(f"{option}=") for a in arguments) > 1:
            raise InputError(
                f"{option} is given more than once, and only the last would count; give all after one {option}"
            )
    deferred = tyro.conf.configure(tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone)(_deferred(function))
    return in_one_line(lambda: tyro.cli(deferred, args=arguments, prog=prog, config=config), prog)


def parse_with_sampler(function: Callable[..., int], arguments: list[str], prog: str) -> Callable[[], int]:
    """As :func:`parse`, for a function whose ``sampler`` may be any that is registered: `sampler:mala`."""
    from nrf.samplers import SAMPLERS  # torch comes with it, which other commands need not wait for

    kinds = tuple(Annotated[kind, tyro.conf.subcommand(name)] for name, kind in SAMPLERS.items())
    assert isinstance(function, FunctionType)
    typed = FunctionType(function.__code__, function.__globals__, function.__name__)
    typed.__doc__, typed.__kwdefaults__ = function.__doc__, function.__kwdefaults__
    typed.__annotations__ = {**function.__annotations__, "sampler": Union[kinds] | None}  # noqa: UP007
    return parse(typed, arguments, prog, tyro.conf.CascadeSubcommandArgs)


def in_one_line(parse: Callable[[], T], prog: str) -> T:
    """Turn tyro's error, a box of several lines, into an error of one line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parse()
    except SystemExit as stop:
        if not stop.code:
            raise
        raise InputError(f"{_facts(said.getvalue())} (`{prog} --help` says more)") from stop


def _facts(box: str) -> str:
    """What is wrong, from tyro's box of sections, without what the options it names are for."""
    sections: list[list[str]] = [[]]
    for line in box.splitlines()[1:]:
        if line.strip(FRAME):
            sections[-1].append(line[2:].rstrip("│ "))
        else:
            sections.append([])
    facts, near, kinds = list[str](), list[str](), list[str]()
    for head, *rest in filter(None, sections):
        named = [line.strip() for line in rest if re.match(r" {4}[^ \[]", line)]  # what they are for is indented more
        whole = " ".join(" ".join([head[0].lower() + head[1:], *rest]).split())
        if head.startswith("Missing from "):
            facts.append(f"`{head.removeprefix('Missing from ').rstrip(':')}` needs {', '.join(named)}")
        elif head.startswith(("Perhaps you meant", "Arguments similar")):
            near += [name.split()[0] for name in named]
        elif head.startswith("Available subcommands"):
            kinds.append(whole)
        elif head == "Unrecognized options:":
            facts.append(f"unrecognized options: {', '.join(named)}")
        elif not head.startswith(("For full helptext", "Argument helptext")):
            facts.append(whole)
    hint = [f"did you mean {', '.join(dict.fromkeys(near))}?"] if near else kinds
    return "; ".join([*facts, *hint])


def _deferred(function: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    @functools.wraps(function)
    def collect(*args: Any, **kwargs: Any) -> Callable[[], int]:
        return lambda: function(*args, **kwargs)

    collect.__annotations__ = {**function.__annotations__, "return": Callable[[], int]}
    return collect


def early(arguments: list[str], option: str) -> str | None:
    """The value of an option before the real parse, which needs to know the defaults first."""
    for this, following in zip_longest(arguments, arguments[1:]):
        if this == option:
            return following
        if this.startswith(option + "="):
            return this.removeprefix(option + "=")
    return None
