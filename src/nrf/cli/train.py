"""`nrf train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tyro

from nrf.cli.parsing import STOPPED, Stopped, early, in_one_line, say
from nrf.errors import InputError


def _strength(history: list[dict[str, Any]]) -> str:
    """The strength that held-out rows chose for a field around a reference, in words; empty for other fields."""
    last = history[-1] if history else {}
    if "strength" not in last:
        return ""
    if "strength_gain" not in last:
        return ", strength 1 (no rows were held out: --train.watch-share 0.1)"
    gain = f"{last['strength_gain']:+.3f} ± {last['strength_gain_error']:.3f}"
    return f", strength {last['strength']:.3g} by held-out rows, {gain} nats per row over the reference"


def train(arguments: list[str]) -> int:
    from nrf.cli.train_request import PresetOptions, TrainRequest
    from nrf.ranks import leave
    from nrf.runs.presets import PRESETS, find_preset
    from nrf.runs.train import stored_preset
    from nrf.runs.train import train as run_training
    from nrf.training import RunFolder

    if not arguments or arguments[0] in ("-h", "--help"):
        print(
            "usage: nrf train PRESET --out DIR [--resume] [overrides]; `nrf train PRESET --help` lists the overrides\n"
        )
        print("\n".join(f"  {name}" for name in PRESETS))
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    preset = find_preset(name)

    out = early(rest, "--out")
    if "--resume" in rest and out is not None and RunFolder(Path(out)).exists():
        stored_name, stored = stored_preset(Path(out))
        if stored_name != name:
            raise InputError(f"{out} holds a run of preset {stored_name!r}, not {name!r}")
        preset = stored
    prog = f"nrf train {name}"
    request = in_one_line(
        lambda: tyro.cli(
            TrainRequest,
            args=rest,
            default=TrainRequest(out=tyro.MISSING, preset=PresetOptions.of(preset)),
            prog=prog,
            description=(
                f"Train the preset {name!r}. `sampler:sghmc` and the like replace the sampler.\n\n"
                f"Example: nrf train {name} --out runs/{name} --train.iterations 1000 sampler:sghmc"
            ),
            config=(tyro.conf.CascadeSubcommandArgs,),
        ),
        prog,
    )
    preset = request.preset.as_preset()
    again = f"nrf train {name} --out {request.out} --resume"
    try:
        trainer = run_training(
            name, preset, request.out, resume=request.resume, device=request.device, quiet=request.quiet
        )
    except KeyboardInterrupt as stop:
        kept = RunFolder(request.out).latest()
        if kept is None:
            raise Stopped("stopped before the first checkpoint: no training is kept") from stop
        raise Stopped(f"stopped; {kept} is kept, what came after it is not; go on with: {again}") from stop
    finally:
        leave()
    if not trainer.ranks.leads:
        return 0 if trainer.step == trainer.total else STOPPED
    if trainer.step < trainer.total:
        say(f"stopped at step {trainer.step} of {trainer.total}, saved; go on with: {again}")
        return STOPPED
    say(f"trained {trainer.step} steps{_strength(RunFolder(request.out).metrics())}; {RunFolder(request.out).latest()}")
    return 0
