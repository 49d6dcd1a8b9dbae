"""The command line: parse, call, print. A user's mistake is one line and exit code 2; `--debug` shows its origin."""

from __future__ import annotations

import contextlib
import functools
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from nrf._version import __version__
from nrf.errors import InputError, NonFiniteError, NRFError

Folder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
Input = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="INPUT")]

T = TypeVar("T")

FRAME = " │─╭╮╰╯"
"""What boxes are drawn with."""

STOPPED = 130
"""Exit code of a run that was asked to stop, as shells have it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt:
        return _fail("stopped; what was trained is kept, run it again to go on", STOPPED, debug=debug)
    except NonFiniteError as error:
        return _fail(str(error), 1, debug=debug)
    except (NRFError, OSError) as error:
        return _fail(str(error), 2, debug=debug)
    except Exception as error:
        message = f"unexpected {type(error).__name__}: {error} (a fault of nrf; --debug shows where)"
        return _fail(message, 1, debug=debug)


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["--version"]:
        print(f"nrf {__version__}")
        return 0
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_overview())
        return 0 if arguments else 2
    command, rest = arguments[0], arguments[1:]
    if command == "train":
        return _train(rest)
    if command == "data":
        return _data(rest)
    if command not in COMMANDS:
        raise InputError(f"unknown command {command!r}; known are {', '.join(['train', *COMMANDS, 'data'])}")
    return _parse(COMMANDS[command][0], rest, f"nrf {command}")()


def _parse(function: Callable[..., int], arguments: list[str], prog: str) -> Callable[[], int]:
    """Read the arguments now, call later: what is wrong with them is not mixed with what the command does."""
    deferred = tyro.conf.configure(tyro.conf.FlagCreatePairsOff)(_deferred(function))
    return _in_one_line(lambda: tyro.cli(deferred, args=arguments, prog=prog), prog)


def _in_one_line(parse: Callable[[], T], prog: str) -> T:
    """tyro explains a wrong argument in a box of several lines; keep what it says, in one."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parse()
    except SystemExit as stop:
        if not stop.code:
            raise
        lines = [" ".join(line.strip(FRAME).split()) for line in said.getvalue().splitlines()]
        facts = [line for line in lines[1:] if line and "full helptext" not in line and not line.endswith("--help")]
        raise InputError(f"{' '.join(facts)} (`{prog} --help` says more)") from stop


def _deferred(function: Callable[..., int]) -> Callable[..., Callable[[], int]]:
    @functools.wraps(function)
    def collect(*args: Any, **kwargs: Any) -> Callable[[], int]:
        return lambda: function(*args, **kwargs)

    collect.__annotations__ = {**function.__annotations__, "return": Callable[[], int]}
    return collect


# --------------------------------------------------------------------------------------------------------------- train


def _train(arguments: list[str]) -> int:
    from nrf.experiments.presets import PRESETS, find_preset
    from nrf.experiments.run import TrainRequest, stored_preset, train
    from nrf.training import RunFolder

    if not arguments or arguments[0] in ("-h", "--help"):
        print(
            "usage: nrf train PRESET --out DIR [--resume] [overrides]; `nrf train PRESET --help` lists the overrides\n"
        )
        print("\n".join(f"  {name}" for name in PRESETS))
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    preset = find_preset(name)

    out = _early(rest, "--out")
    if "--resume" in rest and out is not None and RunFolder(Path(out)).exists():
        stored_name, stored = stored_preset(Path(out))
        if stored_name != name:
            raise InputError(f"{out} holds a run of preset {stored_name!r}, not {name!r}")
        preset = stored
    prog = f"nrf train {name}"
    request = _in_one_line(
        lambda: tyro.cli(
            TrainRequest,
            args=rest,
            default=TrainRequest(out=tyro.MISSING, preset=preset),
            prog=prog,
            description=f"Train the preset {name!r}. `sampler:sghmc` and the like exchange the sampler.",
            config=(tyro.conf.CascadeSubcommandArgs,),
        ),
        prog,
    )
    trainer = train(
        name, request.preset, request.out, resume=request.resume, device=request.device, quiet=request.quiet
    )
    if trainer.step < trainer.total:
        again = f"nrf train {name} --out {request.out} --resume"
        print(f"stopped at step {trainer.step} of {trainer.total}, saved; go on with: {again}")
        return STOPPED
    print(f"trained {trainer.step} steps; {trainer.folder.latest()}")
    return 0


def _early(arguments: list[str], option: str) -> str | None:
    """The value of an option before the real parse, which needs to know the defaults first."""
    for this, following in zip(arguments, [*arguments[1:], None], strict=True):
        if this == option:
            return following
        if this.startswith(option + "="):
            return this.removeprefix(option + "=")
    return None


# ------------------------------------------------------------------------------------------------ using a trained model


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
    seed: int = 0,
) -> int:
    """Draw samples from a trained model.

    Args:
        folder: Folder of the run.
        out: Where to write: .npz (arrays x and h) or .png.
        n: Number of samples.
        revise: Revise them with the sampler of the training.
        steps: Revision steps, instead of those of the training.
        temperature: Temperature of the revision, instead of that of the training.
        step_size: Step size of the revision, instead of that of the training.
        averaged: Use the averaged weights.
        seed: Seed of the draw.
    """
    from nrf.experiments.trained import Trained

    suffix = _suffix(out, ".npz", ".png")
    changes = {"n_steps": steps, "temperature": temperature, "step_size": step_size}
    if not revise and any(v is not None for v in changes.values()):
        raise InputError("--steps, --temperature and --step-size are about the revision; add --revise")
    trained = Trained.load(folder, averaged=averaged)
    x, h = trained.sample(n, seed=seed, revise=revise, **changes)
    if suffix == ".npz":
        _write_npz(out, x=x, h=h)
    else:
        _draw(trained.preset.data.name, x, out)
    print(f"{n} {'revised' if revise else 'generated'} samples: {out}")
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
    averaged: bool = False,
    seed: int = 0,
) -> int:
    """Pull given rows towards what the model finds typical.

    Args:
        folder: Folder of the run.
        input: Rows to revise: .npz, .npy, .csv or .txt, in the units the model was trained in.
        out: Where to write: .npz (arrays x, before, u and u_before) or .png.
        steps: Revision steps, instead of those of the training.
        temperature: Temperature, instead of that of the training.
        step_size: Step size, instead of that of the training.
        averaged: Use the averaged weights.
        seed: Seed of the noise.
    """
    from nrf.data import read_array
    from nrf.experiments.trained import Trained

    suffix = _suffix(out, ".npz", ".png")
    trained = Trained.load(folder, averaged=averaged)
    before = read_array(input, trained.event_shape)
    x = trained.revise(before, seed=seed, n_steps=steps, temperature=temperature, step_size=step_size)
    u_before, u = trained.score(before), trained.score(x)
    if suffix == ".npz":
        _write_npz(out, x=x, before=before, u_before=u_before, u=u)
    else:
        _draw(trained.preset.data.name, x, out)
    print(f"{len(x)} rows revised, mean potential {u_before.mean():.4g} → {u.mean():.4g}: {out}")
    return 0


def score(folder: Folder, input: Input, /, *, out: Path, averaged: bool = False) -> int:
    """Score rows by their potential: high = normal, low = anomalous.

    Args:
        folder: Folder of the run.
        input: Rows to score: .npz, .npy, .csv or .txt, in the units the model was trained in.
        out: Where to write: .csv (row, potential), .npy or .npz.
        averaged: Use the averaged weights.
    """
    import numpy as np

    from nrf.data import read_array
    from nrf.experiments.trained import Trained

    suffix = _suffix(out, ".csv", ".npy", ".npz")
    trained = Trained.load(folder, averaged=averaged)
    u = trained.score(read_array(input, trained.event_shape))
    out.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".csv":
        lines = ["row,potential", *(f"{i},{float(v):.9g}" for i, v in enumerate(u, start=1))]
        out.write_text("\n".join(lines) + "\n")
    elif suffix == ".npy":
        np.save(out, u)
    else:
        _write_npz(out, u=u)
    print(f"{len(u)} rows scored, potential {u.min():.4g} … {u.max():.4g}: {out}")
    return 0


def interpolate(
    folder: Folder, /, *, out: Path, pairs: int = 8, steps: int = 10, averaged: bool = False, seed: int = 0
) -> int:
    """Draw what the generator makes of codes on straight lines between pairs of random codes.

    Args:
        folder: Folder of the run.
        out: Where to write the .png: a row for each pair, or paths for two-dimensional data.
        pairs: Number of pairs.
        steps: Codes on each line, ends included.
        averaged: Use the averaged weights.
        seed: Seed of the codes.
    """
    from nrf.experiments import figures
    from nrf.experiments.trained import Trained

    _suffix(out, ".png")
    trained = Trained.load(folder, averaged=averaged)
    events = trained.interpolate(pairs, steps, seed=seed)
    if trained.event_shape == (2,):
        figure = figures.paths(events, trained.sample(2000, seed=seed)[0])
    else:
        figure = figures.image_grid(figures.as_images(trained.preset.data.name, events))
    figures.save(figure, out)
    print(f"{pairs} interpolations of {steps} steps: {out}")
    return 0


def demo(*, out: Path = Path("runs/demo"), quick: bool = False, quiet: bool = False) -> int:
    """Train on embedded data, print the figures, write a report page.

    Args:
        out: Folder for the runs and report.html; a stopped demo goes on where it was.
        quick: A few iterations only, to see that everything works.
        quiet: No progress bars.
    """
    from nrf.experiments.demo import demo as run_demo

    result = run_demo(out, print, quick=quick, quiet=quiet)
    print(f"report: {result.report}")
    return 0


def reproduce(
    name: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="NAME")] = None,
    /,
    *,
    list: bool = False,
    quick: bool = False,
    out: Path = Path("runs/reproduce"),
    results: Path = Path("results"),
    jobs: int = 2,
    quiet: bool = False,
) -> int:
    """Run an experiment of the paper: table, figures, report and a JSON record. A stopped one goes on where it was.

    Args:
        name: The experiment.
        list: Show every table and figure, and what the results folder holds of it.
        quick: A tiny version, to see that everything works; its record stays out of the results folder.
        out: Folder for the work in progress and the report.
        results: Folder for the record and the figures.
        jobs: Processes at a time.
        quiet: No progress bar.
    """
    from nrf.experiments.registry import PAPER, find_experiment, state
    from nrf.experiments.reproduce import Options
    from nrf.experiments.reproduce import reproduce as run_experiment

    if list:
        for known, what in PAPER.items():
            print(f"{known:20} {what:50} [{state(known, results)}]")
        return 0
    if name is None:
        raise InputError("which experiment? `nrf reproduce NAME`; `nrf reproduce --list` shows them")
    run_experiment(find_experiment(name), Options(out, results, jobs, quick, quiet), print)
    return 0


# ---------------------------------------------------------------------------------------------------------------- data


def _data(arguments: list[str]) -> int:
    def data(
        action: tyro.conf.Positional[Literal["list", "fetch", "verify"]],
        name: tyro.conf.Positional[str | None] = None,
        /,
        *,
        path: Path | None = None,
    ) -> int:
        """List the datasets, fetch one into the cache, or check one's files and facts.

        Args:
            action: What to do.
            name: The dataset, for fetch and verify.
            path: Folder of the files, for verify; else $NRF_DATA or the cache.
        """
        if action == "list":
            return _list_data()
        if name is None:
            raise InputError(f"which dataset? `nrf data {action} NAME`; `nrf data list` shows the names")
        if action == "fetch":
            return _fetch_data(name, path)
        return _verify_data(name, path)

    return _parse(data, arguments, "nrf data")()


def _list_data() -> int:
    from nrf.data import DATASETS, locate

    for name, dataset in DATASETS.items():
        place = locate(name) if dataset.files else "built in"
        print(f"{name:10}  {dataset.description}  [{place or 'not here; nrf data fetch ' + name}]")
    return 0


def _fetch_data(name: str, path: Path | None) -> int:
    from nrf.data import fetch

    if path is not None:
        raise InputError("fetch writes to the cache; set $NRF_CACHE to choose its place")
    print(f"{name}: {fetch(name, notify=print)}")
    return 0


def _verify_data(name: str, path: Path | None) -> int:
    from nrf.data import verify

    checks = verify(name, path)
    for check in checks:
        print(check)
    wrong = [check for check in checks if not check.ok]
    print(f"{name}: {len(checks) - len(wrong)} of {len(checks)} checks passed")
    return 2 if wrong else 0


# -------------------------------------------------------------------------------------------------------------- helpers

COMMANDS: dict[str, tuple[Callable[..., int], str]] = {
    "sample": (sample, "draw samples, generated or revised"),
    "revise": (revise, "pull given rows towards typical ones"),
    "score": (score, "score rows: high = normal"),
    "interpolate": (interpolate, "walk in the latent space"),
    "reproduce": (reproduce, "run an experiment of the paper"),
    "demo": (demo, "train on embedded data and write a report page"),
}


def _overview() -> str:
    lines = [f"nrf {__version__}: inclusive neural random fields", "", "usage: nrf COMMAND … [--debug]", ""]
    lines.append("  train        train a preset; `nrf train` lists them")
    lines += [f"  {name:12} {summary}" for name, (_, summary) in COMMANDS.items()]
    lines += ["  data         list, fetch or verify datasets", "", "`nrf COMMAND --help` says more."]
    return "\n".join(lines)


def _suffix(path: Path, *allowed: str) -> str:
    if path.suffix not in allowed:
        raise InputError(f"{path}: the name must end in {' or '.join(allowed)}")
    return path.suffix


def _write_npz(path: Path, **arrays: Any) -> None:
    import numpy as np

    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)


def _draw(dataset: str, x: Any, out: Path) -> None:
    """Points if they have two dimensions, else a square of images."""
    from nrf.experiments import figures

    if x.shape[1:] == (2,):
        figures.save(figures.points({"samples": x}), out)
        return
    side = min(int(len(x) ** 0.5), 16)
    images = figures.as_images(dataset, x[: side * side])
    figures.save(figures.image_grid(images.reshape(side, side, *images.shape[1:])), out)


def _fail(message: str, code: int, *, debug: bool) -> int:
    if debug:
        import traceback

        traceback.print_exc()
    print(f"nrf: {' '.join(message.split())}", file=sys.stderr)
    return code
