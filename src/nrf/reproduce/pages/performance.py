"""Tables of docs/performance.md, of the record of `nrf bench`."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, log10

from nrf.reproduce.pages.records import Records
from nrf.reproduce.runner.record import Row, spread
from nrf.reproduce.runner.report import Table

PRESETS = {
    "GMM": "gmm-released",
    "KDDCUP": "kddcup-sghmc-released",
    "MNIST": "mnist-sghmc-released",
    "CIFAR-10": "cifar10-one-class-sghmc-released",
}
POTENTIALS = {
    "GMM": "2-100-100-1, batches of 100",
    "KDDCUP": "121-60-30-10-1, batches of 1,024",
    "MNIST": "784-1000-500-250-250-250-1, batches of 100",
    "CIFAR-10": "nine convolutions, batches of 64",
}
GOALS = {"GMM": "4", "KDDCUP": "3", "MNIST": "1.5", "CIFAR-10": "1.3"}


def _short(value: float) -> str:
    """One decimal of what is small, none of what is large."""
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _milliseconds(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _three_digits(value: float) -> str:
    step = 10 ** max(floor(log10(value)) - 2, 0)
    return f"{step * round(value / step):,}"


def revision(records: Records) -> Table:
    """How much of a revision is arithmetic."""
    rows = records.rows("bench")
    lines = []
    for case, potential in POTENTIALS.items():
        place = {"preset": PRESETS[case], "case": case}
        share = rows.get("revision", "share of the machine's peak", **place).mean
        bare = rows.get("revision", "share of the bare arithmetic's speed", **place)
        speed = rows.get("revision", "GFLOP/s", **place).mean
        lines.append([f"{case}, {potential}", f"{speed:.0f}", f"{share:.2f}", bare.text(".2f")])
    header = ["potential", "GFLOP/s", "share of the machine's peak", "share of the bare arithmetic's speed"]
    return Table(header, lines)


def iterations(records: Records) -> Table:
    """Training iterations against a plain loop."""
    rows = records.rows("bench")
    kinds = {case: (case, "iteration") for case in PRESETS}
    kinds["GMM, ten models together, per model"] = ("GMM", "iteration of 10 replicas, per model")
    order = ["GMM", "GMM, ten models together, per model", "KDDCUP", "MNIST", "CIFAR-10"]
    lines = []
    for name in order:
        case, method = kinds[name]
        place = {"preset": PRESETS[case], "case": case}
        faster = rows.get(method, "times faster than the plain loop", **place)
        time = _milliseconds(rows.get(method, "milliseconds", **place).mean)
        lines.append([name, time, faster.text(".2f" if faster.mean < 10 else ".1f"), GOALS.get(name, "")])
    return Table(["iteration", "ms", "times faster than the plain loop", "goal"], lines)


def parts(records: Records) -> Table:
    """Where the time of an iteration goes."""
    rows = records.rows("bench")
    names = ("whole iteration", "proposal", "revision", "step of the potential", "step of the generator")

    def of(method: str, metric: str, case: str) -> float:
        return rows.get(method, metric, preset=PRESETS[case], case=case).mean

    lines = [[name, *(_milliseconds(of(name, "milliseconds", case)) for case in PRESETS)] for name in names]
    speed = "GFLOP/s of products and convolutions"
    lines.append(
        [
            "GFLOP/s of its products and convolutions",
            *(f"{of('whole iteration', speed, case):.0f}" for case in PRESETS),
        ]
    )
    return Table(["part", *PRESETS], lines)


def samplers(records: Records) -> Table:
    """Against torchebm and a bare loop."""
    rows = records.rows("bench")
    lines = []
    for case in rows.cases("times faster than a bare loop"):
        ours = rows.get("Langevin", "times faster than torchebm's Langevin", case=case)
        hmc = rows.find("HMC", "times faster than torchebm's HMC", case=case)
        bare = rows.get("Langevin", "times faster than a bare loop", case=case)
        theirs = "(its HMC is for rows)" if hmc is None else hmc.text(".2f")
        lines.append([case.split(": ", 1)[1], ours.text(".2f"), theirs, bare.text(".2f")])
    header = ["potential", "Langevin over torchebm's", "HMC over torchebm's", "Langevin over a bare loop"]
    return Table(header, lines)


def scoring(records: Records) -> Table:
    """`score_samples` beside ONNX runtime."""
    rows = records.rows("bench")
    metric = "million rows a second"
    widths = {"128-64": "128-64 (the default above 100,000 rows)", "256-128": "256-128"}
    lines = []
    for width, text in widths.items():
        case = f"1,000,000 rows, 120 columns, networks {width}"
        found = [rows.get(method, metric, case=case) for method in ("score_samples", "ONNX runtime")]
        lines.append([text, *(f"{row.mean:.2f}" for row in found)])
    return Table(["networks", "`score_samples`, million rows a second", "ONNX runtime"], lines)


def detectors(records: Records) -> Table:
    """Beside other detectors, by rows."""
    rows = records.rows("bench")
    lines: list[list[str]] = []
    for case in rows.cases("seconds to fit"):
        of_case = [row.method for row in rows.all if row.metric == "seconds to fit" and row.case == case]
        for i, method in enumerate(of_case):
            seconds, speed, auroc = (
                rows.get(method, metric, case=case).mean
                for metric in ("seconds to fit", "rows scored a second", "AUROC")
            )
            size = case.removesuffix(" rows") if i == 0 else ""
            lines.append([size, method, _short(seconds), _three_digits(speed), f"{auroc:.3f}"])
    return Table(["rows", "method", "seconds to fit", "rows scored a second", "AUROC"], lines)


def detector_fits(records: Records) -> Table:
    """What a fit of the default field costs."""
    rows = records.rows("detector-speed")
    lines = []
    for case in rows.cases("CPU-seconds to fit"):
        cpu, auroc = (rows.get("NRFDetector", metric, case=case).mean for metric in ("CPU-seconds to fit", "AUROC"))
        lines.append([case, f"{cpu:.2f}" if cpu < 10 else f"{cpu:.0f}", f"{auroc:.3f}"])
    return Table(["table", "CPU-seconds to fit, one thread", "AUROC"], lines)


def detector_scores(records: Records) -> Table:
    """How fast it scores."""
    rows = records.rows("detector-speed")
    metrics = ("rows scored per CPU-second, one thread", "rows scored per second, two threads")
    lines = [
        [case, *(_three_digits(rows.get("NRFDetector", metric, case=case).mean) for metric in metrics)]
        for case in rows.cases(metrics[0])
    ]
    return Table(["field", *metrics], lines)


def streaming(records: Records) -> Table:
    """Memory of a streamed file."""
    rows = records.rows("detector-speed")
    metric = "MB at the peak"
    lines = [[case, f"{rows.get('nrf detect score', metric, case=case).mean:,.0f}"] for case in rows.cases(metric)]
    return Table(["CSV file", metric], lines)


def generation(records: Records) -> Table:
    """What an iteration of images costs."""
    rows = records.rows("bench")
    networks = {
        "standard CNN, batches of 64": ("cifar10-cnn", "batches of 64"),
        "ResNet, batches of 8": ("cifar10-resnet", "batches of 8"),
    }
    lines = []
    for text, (preset, batches) in networks.items():

        def of(method: str, metric: str, name: str, batches: str = batches) -> Row:
            return rows.get(method, metric, preset=name, case=f"{name}, {batches}")

        for i, (setting, name) in enumerate({"paper": preset, "released": f"{preset}-released"}.items()):
            numbers = _cost(of, "inclusive-NRF", name)
            ratio = of("inclusive-NRF", "times SNGAN's iteration", name)
            method = f"inclusive-NRF, `{setting}`"
            lines.append(["" if i else text, method, *numbers, spread(ratio.mean, ratio.sd, ".2f")])
        lines.append(["", "SNGAN", *_cost(of, "SNGAN", preset), "1"])
    return Table(["networks", "method", "GFLOP an image", "seconds an iteration", "times SNGAN's"], lines)


def _cost(of: Callable[[str, str, str], Row], method: str, preset: str) -> list[str]:
    flops, seconds = (of(method, metric, preset).mean for metric in ("GFLOP an image", "seconds an iteration"))
    return [f"{flops:.3g}", f"{seconds:.2f}"]


TABLES: dict[str, Callable[[Records], Table]] = {
    "bench, revision": revision,
    "bench, iterations": iterations,
    "bench, parts": parts,
    "bench, samplers": samplers,
    "bench, scoring": scoring,
    "bench, detectors": detectors,
    "bench, generation": generation,
    "detector-speed, fits": detector_fits,
    "detector-speed, scores": detector_scores,
    "detector-speed, streaming": streaming,
}
