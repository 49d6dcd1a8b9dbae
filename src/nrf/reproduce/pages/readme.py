"""Short tables of docs/results.md, one for each experiment; until 0.2 the README had them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nrf.reproduce.demo import INCLUSIVE, LENGTH, LEVELS
from nrf.reproduce.gmm.cells import LEVELS as LEVELS_PRESETS
from nrf.reproduce.kddcup.experiment import ARRAY
from nrf.reproduce.one_class.matrix import SHORT_PAIRS
from nrf.reproduce.one_class.paper import quoted_mean
from nrf.reproduce.pages.records import Records, Rows, joined, means
from nrf.reproduce.runner.record import Row, spread
from nrf.reproduce.runner.report import Table
from nrf.runs.presets import find_preset

MODES, REALISTIC = "covered modes", "realistic ratio"
PIXELS = "released, half width"
"""The setting of the pairs on CIFAR-10's pixels that ran on every class."""


def demo_mixture(records: Records) -> Table:
    """What the demo prints of the mixture."""
    rows = records.rows("demo")
    names = {name: name for name in ("generation", "revision", "short revision")}
    names |= {"oracle": "oracle (redraws the training data)"}
    places = {name: {"preset": INCLUSIVE, "column": "last"} for name in names}
    names = {"noise levels": "down the noise levels (`nrf train gmm-levels`, 3,000 iterations)", **names}
    places["noise levels"] = {"preset": LEVELS, "column": "last"}
    lines = [
        [text, rows.get(name, MODES, **places[name]).text(".2f"), rows.get(name, REALISTIC, **places[name]).text(".3f")]
        for name, text in names.items()
    ]
    return Table([f"32-mode mixture (`nrf train gmm-short`, {LENGTH:,} iterations)", MODES, REALISTIC], lines)


def demo_digits(records: Records) -> Table:
    """What it prints of the digits."""
    rows = records.rows("demo")
    names = {"untrained": "untrained potential", "last": "potential, last model", "1-NN": "1-NN"}
    place = {"preset": "digits", "column": "last"}
    lines = [
        [text, rows.get(name, "mean AUROC", **place).text(), rows.get(name, "AUROC", case="digit 8", **place).text()]
        for name, text in names.items()
    ]
    header = ["digits, one class against the rest (`nrf train digits`, 600 iterations)", "mean AUROC", "digit 8"]
    return Table(header, lines)


def mixture(records: Records) -> Table:
    """Modes and realistic samples after the paper's iterations: `best` of its cell, the others of the record."""
    rows = records.rows("gmm")
    models = records.cell("gmm", "best-inclusive-nrf")["models"]

    def again(kind: str) -> str:
        of = {m: Row.of([model["averaged"][f"{kind}: {m}"] for model in models], "", m) for m in (MODES, REALISTIC)}
        return f"{of[MODES].text('.2f')}, {of[REALISTIC].mean:.2f}"

    def released(method: str, kind: str, *, sd: bool) -> str:
        place = {"preset": "released", "case": f"{kind}, last weights"}
        modes, realistic = rows.get(method, MODES, **place), rows.get(method, REALISTIC, **place)
        return f"{modes.text('.2f') if sd else f'{modes.mean:.2f}'}, {realistic.mean:.2f}"

    def paper(kind: str) -> str:
        place = {"preset": "released", "case": f"{kind}, last weights"}
        modes, realistic = (rows.get("inclusive-NRF", metric, **place) for metric in (MODES, REALISTIC))
        return f"{modes.paper_text('.2f')}, {spread(realistic.paper, None, '.2f')}"

    others = " / ".join(released(m, "generation", sd=False) for m in ("GAN", "WGAN-GP", "exclusive-NRF"))
    mine = "inclusive-NRF, our settings (`gmm-best`, averaged weights), independent draws"
    scripts = "inclusive-NRF, the scripts' settings; **earlier code, coupled draws**"
    ours = [released("inclusive-NRF", kind, sd=True) for kind in ("generation", "revision")]

    def levels(method: str, kind: str) -> str:
        place = {"preset": "levels", "case": f"{kind}, averaged weights"}
        modes, realistic = rows.find(method, MODES, **place), rows.find(method, REALISTIC, **place)
        return "" if modes is None or realistic is None else f"{modes.text('.2f')}, {realistic.mean:.2f}"

    lines = [
        *(
            [
                f"{name} (`{preset}`, averaged weights), 3,000 iterations",
                levels(name, "generation"),
                levels(name, "revision"),
            ]
            for name, preset in LEVELS_PRESETS.items()
            if levels(name, "revision")
        ),
        [mine, again("generation"), again("revision")],
        [scripts, *ours],
        ["GAN / WGAN-GP / exclusive-NRF, the scripts' settings; **earlier code**", others, ""],
        ["the paper's inclusive-NRF", paper("generation"), paper("revision")],
    ]
    header = "32-mode mixture (`nrf reproduce gmm`): ten models, 160,000 iterations unless said"
    return Table([header, "generation: modes, realistic", "revision: modes, realistic"], lines)


def sampler_study(records: Records) -> Table:
    """KL at the end on the first draw."""
    rows = records.rows("sampler-study")

    def of(*names: str, preset: str = "paper") -> str:
        return joined([rows.get(name, "KL at the end", preset=preset, case="draw 0") for name in names], ".2f")

    floor = rows.get("perfect draws", "KL at the end", case="all draws").mean
    lines = [
        ["HMC, exact gradients", of("HMC")],
        ["SGHMC, the paper's stochastic gradients", of("SGHMC")],
        ["LD, exact gradients", of("LD")],
        ["SGLD / CoopNet", of("SGLD", "CoopNet")],
        ["SGHMC, with longer steps of h (ours)", of("SGHMC, long h-steps", preset="ours")],
    ]
    what = f"sampler study (`nrf reproduce sampler-study`): KL to p(x)q(h|x) at the end, perfect draws {floor:.2f}"
    return Table([what, "mean ± SD"], lines)


def kddcup(records: Records) -> Table:
    """F1 of last model and best epoch."""
    rows = records.rows("kddcup")
    samplers = ("inclusive-NRF, SGLD", "inclusive-NRF, SGHMC")

    def f1(method: str, preset: str | None, column: str | None) -> Row:
        return rows.get(method, "F1", preset=preset, case="all test rows", column=column)

    quoted = " / ".join(f1(method, "released", "oracle").paper_text() for method in samplers)
    compared = [f1("1-NN", None, None), *(f1(m, None, c) for m, c in (("DSEBM-e", "last"), ("OC-SVM", None)))]
    compared.append(f1("DAGMM", None, "last"))
    detector = f1("NRFDetector", "best", "last")

    def scripts(setting: str, text: str) -> list[str]:
        last, oracle = ([f1(m, setting, column) for m in samplers] for column in ("last", "oracle"))
        return [f"inclusive-NRF, the scripts' settings, {text}: {last[0].n} splits", joined(last), joined(oracle)]

    lines = [
        [f"NRFDetector, {detector.n} splits", detector.text(), "no epochs"],
        scripts(ARRAY, "released array: SGLD / SGHMC"),
        scripts("released", "our columns, older initialisation of weight norm: SGLD / SGHMC"),
        ["the paper's inclusive-NRF: SGLD / SGHMC", "", quoted],
        [f"1-NN / DSEBM-e / OC-SVM / DAGMM, {compared[0].n} splits", means(compared), ""],
        ["untrained potential, the control", f1("untrained potential", None, None).text(), ""],
    ]
    header = ["KDDCUP (`nrf reproduce kddcup`): F1, mean ± SD", "last model"]
    return Table([*header, "best epoch on the test rows, as published"], lines)


def _one_class(rows: Rows, method: str, preset: str | None = None, column: str | None = None) -> Row:
    return rows.get(method, "AUROC", preset=preset, column=column)


def _oracle(rows: Rows) -> str:
    """The best epoch of `best`, where the detector has epochs: a field without a network has none."""
    last, oracle = (_one_class(rows, "NRFDetector", "best", column).mean for column in ("last", "oracle"))
    return "no epochs" if oracle == last else f"{oracle:.1f}"


def seeds_of(row: Row) -> str:
    """How many seeds a row is the mean of, for the end of a line's name."""
    return ", one seed" if row.n == 1 else f", {row.n} seeds"


def mnist(records: Records) -> Table:
    """Mean AUROC of ten digits."""
    rows = records.rows("mnist-one-class")
    best = _one_class(rows, "NRFDetector", "best", "last")
    scripts = [
        f"{_one_class(rows, 'inclusive-NRF, SGHMC', 'released', column).mean:.1f}" for column in ("last", "oracle")
    ]
    published = quoted_mean("mnist", "SGHMC")
    systems = [_one_class(rows, name) for name in ("1-NN", "KDE", "OC-SVM", "isolation forest")]
    controls = [_one_class(rows, name) for name in ("1-NN on the features of `best`", "untrained potential")]
    lines = [
        [f"NRFDetector on features learned without labels{seeds_of(best)}", f"{best.mean:.1f}", _oracle(rows)],
        ["inclusive-NRF, the scripts' settings, SGHMC", *scripts],
        ["the paper's inclusive-NRF, SGHMC", "", f"{published:.1f}"],
        ["1-NN / KDE / OC-SVM / isolation forest, on pixels", means(systems, ".1f"), ""],
        ["1-NN on the features / untrained potential on pixels, the controls", means(controls, ".1f"), ""],
    ]
    what = "one-class MNIST (`nrf reproduce mnist-one-class`): mean AUROC of ten digits, percent"
    return Table([what, "last model", "best epoch on the test images, as published"], lines)


def cifar10(records: Records) -> Table:
    """Mean AUROC of ten classes."""
    rows = records.rows("cifar10-one-class")
    best = _one_class(rows, "NRFDetector", "best", "last")
    quoted = " / ".join(f"{quoted_mean('cifar10', sampler):.1f}" for sampler in ("SGLD", "SGHMC"))
    systems = [_one_class(rows, name) for name in ("1-NN", "KDE", "isolation forest", "OC-SVM")]
    answers = _one_class(rows, "sum of the answers of `best`")
    lines = [
        [
            f"NRFDetector on what a network that tells rotations has learned{seeds_of(best)}",
            f"{best.mean:.1f}",
            _oracle(rows),
        ],
        ["the same answers added up, no field, the control", f"{answers.mean:.1f}", ""],
        *_pairs_on_pixels(rows),
        ["the paper's inclusive-NRF on pixels, SGLD / SGHMC (quoted)", "", quoted],
        ["1-NN / KDE / isolation forest / OC-SVM, on pixels", means(systems, ".1f"), ""],
    ]
    what = "one-class CIFAR-10 (`nrf reproduce cifar10-one-class`): mean AUROC of ten classes, percent"
    return Table([what, "last model", "best epoch on the test images, as published"], lines)


def length_of_pairs() -> str:
    """How much smaller and shorter those pairs are than the scripts'."""
    line = next(line for line in SHORT_PAIRS if line.setting == PIXELS)
    assert line.preset is not None
    return f"half the width, {line.epochs} of {find_preset(line.preset).train.epochs} epochs"


def _pairs_on_pixels(rows: Rows) -> Iterator[list[str]]:
    """Mean AUROC of the narrower pairs, once they have run on every class."""
    samplers = [f"inclusive-NRF, {sampler}" for sampler in ("SGLD", "SGHMC")]
    found = [[rows.find(m, "AUROC", preset=PIXELS, column=c) for m in samplers] for c in ("last", "oracle")]
    if all(row is not None for column in found for row in column):
        means = [" / ".join(f"{row.mean:.1f}" for row in column if row is not None) for column in found]
        yield [f"inclusive-NRF on pixels ({length_of_pairs()}), SGLD / SGHMC", *means]


def generation(records: Records) -> Table:
    """Scores of images."""
    rows = records.rows("cifar10-generation")

    def of(method: str, metric: str, *kinds: str) -> str:
        return joined([rows.get(method, metric, preset="best", case=kind) for kind in kinds], ".2f")

    both = ("generation", "revision")
    ours = [of("inclusive-NRF", metric, *both) for metric in ("FID-c10", "IS-c10")]
    lines = [
        ["SNGAN", *(of("SNGAN", metric, "generation") for metric in ("FID-c10", "IS-c10"))],
        ["inclusive-NRF, generation / revision", *ours],
    ]
    minutes = rows.get("inclusive-NRF", "minutes", preset="best")
    what = (
        "CIFAR-10 generation (`nrf reproduce cifar10-generation`): a quarter as wide as the paper's, "
        f"{minutes.mean:.0f} minutes of one core each{seeds_of(minutes)}; scores by our own classifier, not Inception"
    )
    return Table([what, "FID-c10", "IS-c10, ten draws of 5,000"], lines)


def detectors(records: Records) -> Table:
    """Ours beside others on tables."""
    rows = records.rows("detectors").within(None)
    names = {
        "NRFDetector": ("NRF",),
        "1-NN / 5-NN": ("1-NN", "5-NN"),
        "LOF": ("LOF",),
        "Deep SVDD / autoencoder": ("Deep SVDD", "autoencoder"),
        "isolation forest": ("isolation forest",),
        "untrained NRF, the control": ("untrained NRF",),
    }
    lines = [
        [text, joined([rows.get(m, "AUROC") for m in of]), means([rows.get(m, "mean rank") for m in of], ".2f")]
        for text, of in names.items()
    ]
    n, sets = len(rows.methods("mean rank")), rows.get("NRF", "mean rank").n
    what = f"detectors (`nrf reproduce detectors`): {sets} data sets, trained on normal rows, defaults of each"
    return Table([what, "mean AUROC", f"mean rank of {n}"], lines)


TABLES: dict[str, Callable[[Records], Table]] = {
    "demo mixture": demo_mixture,
    "demo digits": demo_digits,
    "gmm": mixture,
    "sampler-study": sampler_study,
    "kddcup": kddcup,
    "mnist-one-class": mnist,
    "cifar10-one-class": cifar10,
    "cifar10-generation": generation,
    "detectors": detectors,
}
