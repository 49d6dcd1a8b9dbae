"""The command line: parse, call, print. A user's mistake is one line and exit code 2; `--debug` shows its origin."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable, Sequence

from nrf._version import __version__
from nrf.cli.bench import bench
from nrf.cli.data import data
from nrf.cli.detect import ACTIONS, detect
from nrf.cli.experiments import demo, reproduce
from nrf.cli.parsing import STOPPED, parse, parse_with_sampler, say_old
from nrf.cli.quality import quality
from nrf.cli.runs import runs
from nrf.cli.serve import serve
from nrf.cli.train import train
from nrf.cli.trained import density, interpolate, revise, sample, score
from nrf.cli.tune import tune
from nrf.errors import InputError, NonFiniteError, NRFError, printable
from nrf.processes import terminable


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    code = _run(list(sys.argv[1:] if argv is None else argv))
    if argv is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # With several ranks, a thread of torch can outlive their process group and abort the interpreter as it exits:
        # after all work is done, once in ten runs.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _run(arguments: list[str]) -> int:
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    try:
        with terminable():
            return _dispatch(arguments)
    except KeyboardInterrupt as stop:
        return _fail(str(stop) or "stopped; nothing was written", STOPPED, debug=debug)
    except NonFiniteError as error:
        return _fail(str(error), 1, debug=debug)
    except (NRFError, OSError) as error:
        return _fail(str(error), 2, debug=debug)
    except Exception as error:
        if isinstance(error, MemoryError) or _OUT_OF_MEMORY.search(str(error)):
            return _fail(f"not enough memory{_amount(error)}; take fewer rows at a time", 1, debug=debug)
        message = f"internal error: {type(error).__name__}: {error} (--debug shows where)"
        return _fail(message, 1, debug=debug)


# torch has no exception of its own for what does not fit into main memory.
_OUT_OF_MEMORY = re.compile(r"can't allocate memory|not enough memory|out of memory|Storage size")


def _amount(error: Exception) -> str:
    """What did not fit, as far as the error says."""
    text = " ".join(str(error).split())
    return f" ({text.partition('DefaultCPUAllocator: ')[2] or text})" if text else ""


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        print(f"nrf {__version__}")
        return 0
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0 if arguments else 2
    command, rest = arguments[0], arguments[1:]
    if command == "train":  # its arguments depend on the preset
        return train(rest)
    if command == "detect":  # its arguments depend on the action
        return detect(rest)
    if command == "export":  # of version 0.1.0
        say_old("nrf export", "nrf detect export")
        return detect(["export", *rest])
    if command not in COMMANDS:
        if command in ACTIONS:
            raise InputError(f"unknown command {command!r}; did you mean `nrf detect {command}`?")
        near = difflib.get_close_matches(command, ["detect", "train", *COMMANDS], n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "`nrf --help` lists them"
        raise InputError(f"unknown command {command!r}; {hint}")
    reads = parse_with_sampler if command in ("sample", "revise") else parse
    return reads(COMMANDS[command][0], rest, f"nrf {command}")()


COMMANDS: dict[str, tuple[Callable[..., int], str]] = {
    "sample": (sample, "draw samples, generated or revised"),
    "revise": (revise, "pull given rows towards typical ones"),
    "score": (score, "score rows by potential or log-density: high = normal"),
    "density": (density, "check that a log-density is normalised"),
    "interpolate": (interpolate, "walk in the latent space"),
    "quality": (quality, "score generated images: inception score, FID, precision, recall"),
    "tune": (tune, "search a detector's settings without labels"),
    "reproduce": (reproduce, "run an experiment of the paper"),
    "demo": (demo, "train on embedded data and write a report page"),
    "bench": (bench, "measure speed as ratios in one run"),
    "runs": (runs, "show run folders in the browser, live while training"),
    "serve": (serve, "serve saved detectors over HTTP"),
    "data": (data, "list, fetch or verify datasets"),
}


def _overview() -> str:
    lines = [f"nrf {__version__}: inclusive neural random fields", "", "usage: nrf COMMAND … [--debug]", ""]
    lines.append("  detect       find anomalies in tables: fit, score, explain, evaluate, export, watch")
    lines.append("  train        train a preset; `nrf train` lists them")
    lines += [f"  {name:12} {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join([*lines, "", "Example: nrf detect fit train.csv --out model\n\n`nrf COMMAND --help` says more."])


def _fail(message: str, code: int, *, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    print(f"nrf: {' '.join(printable(message).split())}", file=sys.stderr)
    return code
