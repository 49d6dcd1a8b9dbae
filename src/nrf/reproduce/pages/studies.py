"""Tables of docs/samplers.md, learners.md, generation.md and fields.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nrf.reproduce.density import known
from nrf.reproduce.density.experiment import THE_TRUTH, likelihoods
from nrf.reproduce.generation.paired import between
from nrf.reproduce.gmm.cells import LEVELS, METROPOLIS, TUNED, WHOLE
from nrf.reproduce.gmm.experiment import DENSITY_METRICS
from nrf.reproduce.pages.records import Records, Rows
from nrf.reproduce.runner.record import Row
from nrf.reproduce.runner.report import Table

KL = "KL at the end"


def sampler_draws(records: Records) -> Table:
    """KL at the end on every draw."""
    rows = records.rows("sampler-study")
    names = {
        "HMC": "HMC (exact)",
        "SGHMC": "SGHMC (Alg. 2)",
        "LD": "LD (exact)",
        "SGLD": "SGLD (Alg. 2)",
        "CoopNet": "CoopNet, 20 and 20 steps",
        "SGHMC, long h-steps": "SGHMC, steps of h of size 1 (ours)",
        "BAOAB, long h-steps": "BAOAB, steps of h of size 1 (ours)",
        "HMC, long h-steps": "HMC (exact), steps of h of size 1 (ours)",
    }
    draws = [case for case in rows.cases(KL) if case.startswith("draw ")]
    lines = []
    for name, text in names.items():
        preset = "ours" if "," in name else "paper"
        lines.append([text, *(rows.get(name, KL, preset=preset, case=draw).text(".2f") for draw in draws)])
    return Table(["KL at the end, mean ± SD of ten runs", *draws], lines)


def inner_moves(records: Records) -> Table:
    """Bias of Alg. 2 against inner moves."""
    rows = records.rows("sampler-study")
    moves = (1, 2, 5, 20)

    def bias(size: str) -> list[str]:
        cases = [f"{n} inner moves of size {size}" for n in moves]
        return [f"{rows.get('Alg. 2', 'relative bias in x', case=case).mean:.3f}" for case in cases]

    ends = [rows.get("SGHMC", KL, preset="paper", case=f"{n} inner moves of size 0.01") for n in moves]
    lines = [
        ["relative bias in x, δ* = 0.01", *bias("0.01")],
        ["relative bias in x, δ* = 0.5", *bias("0.5")],
        ["SGHMC's KL at the end, δ* = 0.01", *(f"{row.mean:.2f}" for row in ends)],
    ]
    return Table(["inner moves", *map(str, moves)], lines)


def effective_samples(records: Records) -> Table:
    """The fastest faithful setting of each sampler."""
    rows = records.rows("sampler-study")
    metric = "effective samples / 1,000 gradients"

    def of(kind: str, gradients: str) -> str:
        (row,) = (r for r in rows.all if r.metric == metric and r.method == f"{kind}, {gradients} gradients")
        setting = (row.case or "").removeprefix("faithful, ")
        return f"{row.text('.2f' if row.mean < 1 else '.1f')} ({setting})"

    lines = [[kind, of(kind, "exact"), of(kind, "Alg. 2")] for kind in ("Langevin", "SGHMC", "BAOAB")]
    header = ["effective samples per 1,000 gradients, mean ± SD of three draws", "exact gradients"]
    return Table([*header, "Alg. 2, steps of h of size 1"], lines)


def learners(records: Records) -> Table:
    """Every learner on the mixture."""
    rows = records.rows("gmm")
    names = ["inclusive-NRF", "exclusive-NRF", "GAN", "WGAN-GP", "exclusive-NRF, variational", "SNGAN", "CoopNet"]
    names += ["CD", "PCD", "replay"]
    levels = [("levels", name) for name in LEVELS if rows.find(name, "iterations", preset="levels") is not None]
    kinds = [*levels, ("best", "inclusive-NRF"), *((s, name) for s in ("released", "paper") for name in names)]
    beside = [(WHOLE, "inclusive-NRF"), *((TUNED, name) for name in names[1:4]), (METROPOLIS, "inclusive-NRF")]
    kinds += [(setting, name) for setting, name in beside if rows.find(name, "iterations", preset=setting) is not None]
    lines = [_learner(rows, setting, name) for setting, name in kinds]
    oracle = rows.get("oracle", "covered modes", case="training data")
    realistic = rows.get("oracle", "realistic ratio", case="training data")
    truth = rows.get("oracle", "log-likelihood", case="the mixture itself")
    samples = f"{oracle.text('.2f')} / {realistic.text('.2f')}"
    lines.append(
        ["", "training data redrawn; the mixture itself", "", samples, "", _signed(f"{truth.mean:.2f}"), "", ""]
    )
    header = ["setting", "method", "iterations", "generation: modes / realistic", "revision, or long chains"]
    return Table([*header, "log-likelihood", "at the best temperature", "as it is; integral; slope"], lines)


def _learner(rows: Rows, setting: str, name: str) -> list[str]:
    weights = "averaged weights" if setting in ("best", "levels") else "last weights"

    def samples(*kinds: str) -> str:
        for kind in kinds:
            place = {"preset": setting, "case": f"{kind}, {weights}"}
            modes, realistic = (rows.find(name, metric, **place) for metric in ("covered modes", "realistic ratio"))
            if modes is not None and realistic is not None:
                return f"{modes.text('.2f')} / {realistic.text('.2f')}"
        return ""

    def likelihood(metric: str) -> str:
        row = rows.find(name, metric, preset=setting, case=weights)
        return "" if row is None else _signed(row.text(".2f"))

    length = rows.get(name, "iterations", preset=setting).mean
    fits = [likelihood(metric) for metric in ("log-likelihood", "log-likelihood, temperature fitted")]
    density = [rows.find(name, metric, preset=setting, case=weights) for metric in DENSITY_METRICS]
    nats = _signed("; ".join(row.text(".3f") for row in density if row is not None))
    return [setting, name, f"{length:,.0f}", samples("generation"), samples("revision", "long chains"), *fits, nats]


def _signed(text: str) -> str:
    """With a true minus."""
    return text.replace("-", "−")


def generation(records: Records) -> Table:
    """Beside SNGAN, with the same time."""
    rows = records.rows("cifar10-generation")
    distances = [row for row in rows.all if row.metric == "FID-c10" and row.case is not None]
    best = min(row.mean for row in distances)
    header = ["method", "setting", "seeds", "iterations", "IS-c10", "FID-c10"]
    header += ["FID-c10, 50,000 samples, training images", "precision", "recall"]
    return Table(header, [_scores_of(row, rows, best) for row in distances])


def generation_differences(records: Records) -> Table:
    """Revision less generation, and inclusive-NRF less SNGAN, seed by seed."""
    rows = records.rows("cifar10-generation")
    lines = []
    for row in (row for row in rows.all if row.metric == "FID-c10" and row.case is None and row.n > 1):
        inception = rows.get(row.method, "IS-c10", preset=row.preset)
        lines.append([row.method, row.preset or "", str(row.n), between(inception), between(row)])
    return Table(["difference", "setting", "seeds", "IS-c10", "FID-c10"], lines)


def generation_rates(records: Records) -> Table:
    """Learning rates and steps of revision, by training images that were held out."""
    rows = records.rows("generation-rates")
    lines = []
    for found in (row for row in rows.all if (row.metric, row.case) == ("FID-c10", "generation")):
        revised = rows.find(found.method, "FID-c10", preset=found.preset, case="revision")
        rates, _, step = (found.preset or "").partition(", ")
        texts = [found.text(".2f"), "" if revised is None else revised.text(".2f")]
        lines.append([found.method, rates, step or ("the script's step" if revised else ""), *texts])
    return Table(["method", "rates of u and g", "revision", "FID-c10: generation", "FID-c10: revision"], lines)


def _scores_of(distance: Row, rows: Rows, best: float) -> list[str]:
    method, setting, case = distance.method, distance.preset, distance.case

    def of(metric: str) -> Row:
        return rows.get(method, metric, preset=setting, case=case)

    text = distance.text(".2f")
    return [
        method if case == "generation" else f"{method}, the same revised",
        setting or "the method's own",
        str(distance.n),
        f"{rows.get(method, 'iterations', preset=setting).mean:,.0f}",
        of("IS-c10").text(".2f"),
        f"**{text}**" if distance.mean == best else text,
        of("FID-c10, training images").text(".2f"),
        *(f"{of(metric).mean:.2f}" for metric in ("precision-c10", "recall-c10")),
    ]


def densities(records: Records) -> Table:
    """Likelihoods of every density that is known."""
    rows = records.rows("density").all
    methods = [THE_TRUTH, *(name for name in records.rows("density").methods("slope"))]
    lines = [[_signed(text) for text in likelihoods(name, rows)] for name in methods]
    return Table(["log-likelihood, mean ± SD", *known.names()], lines)


def densities_in_the_plane(records: Records) -> Table:
    """The other numbers, of densities in two columns."""
    metrics = ["KL from the truth", "slope", "integral", "energy distance", "covered modes", "realistic ratio"]
    return _densities(records, [name for name in known.names() if known.known(name).d == 2], metrics)


def densities_in_more_columns(records: Records) -> Table:
    """The other numbers, of the mixtures."""
    metrics = ["KL from the truth", "slope", "integral", "integral, standard error", "energy distance"]
    return _densities(records, [name for name in known.names() if known.known(name).d > 2], metrics)


def _densities(records: Records, cases: Sequence[str], metrics: Sequence[str]) -> Table:
    rows = records.rows("density")
    lines = []
    for case in cases:
        for method in rows.methods("slope"):
            if rows.find(method, "slope", case=case) is not None:
                found = [rows.find(method, metric, case=case) for metric in (*metrics, "CPU-seconds")]
                forms = [*(".2f" if "modes" in metric else ".3f" for metric in metrics), ".1f"]
                texts = ["" if row is None else _signed(row.text(form)) for row, form in zip(found, forms, strict=True)]
                lines.append([case, method, *texts])
    return Table(["density", "method", *metrics, "CPU-seconds"], lines)


TABLES: dict[str, Callable[[Records], Table]] = {
    "sampler-study, draws": sampler_draws,
    "sampler-study, inner moves": inner_moves,
    "sampler-study, effective samples": effective_samples,
    "gmm, learners": learners,
    "cifar10-generation, all scores": generation,
    "cifar10-generation, differences": generation_differences,
    "generation-rates": generation_rates,
    "density, likelihoods": densities,
    "density, plane": densities_in_the_plane,
    "density, columns": densities_in_more_columns,
}
