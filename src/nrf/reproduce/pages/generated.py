"""Tables of docs/generation.md: MNIST generation, and what the records say of the paper's claims about images."""

from __future__ import annotations

from collections.abc import Callable

from nrf.reproduce.generation.experiment import AGAINST_SNGAN
from nrf.reproduce.generation.mnist import METRICS, REVISION, difference_table, step_table
from nrf.reproduce.generation.mnist_cells import LINES
from nrf.reproduce.generation.paired import between, said
from nrf.reproduce.one_class.matrix import SAMPLERS
from nrf.reproduce.one_class.paper import quoted_mean
from nrf.reproduce.pages.records import Records, Rows
from nrf.reproduce.runner.report import Table

MNIST = "mnist-generation"
NOT_RUN = "not run yet"


def _rows(records: Records, name: str) -> Rows:
    """Of a record, or none where it is not there yet."""
    return records.rows(name) if (records.folder / f"{name}.json").is_file() else Rows(name, [])


def mnist_scores(records: Records) -> Table:
    """Every line that was run, and its kinds of samples."""
    rows, lines = _rows(records, MNIST), []
    for line in LINES:
        for kind in line.kinds:
            found = [rows.find(line.method, metric, case=kind) for metric in METRICS]
            if found[0] is not None:
                texts = ["" if row is None else row.text(".2f") for row in found]
                lines.append([line.method, kind, str(found[0].n), *texts])
    return Table(["method", "samples", "seeds", *METRICS], lines or [[NOT_RUN, *[""] * (2 + len(METRICS))]])


def mnist_differences(records: Records) -> Table:
    """Seed by seed, with intervals."""
    return difference_table(_rows(records, MNIST).all)


def mnist_steps(records: Records) -> Table:
    """How far revision moves an image."""
    return step_table(_rows(records, MNIST).all)


# -------------------------------------------------------------------------------------------------------------- claims


def claims(records: Records) -> Table:
    """What the paper says of images, what the records say, and whether it holds."""
    lines = [
        ["Revision improves on generation (IS)", "7.38 → 7.43 to 7.47 → 7.56, CIFAR-10", *_mnist(records, REVISION)],
        ["More revision steps help (IS)", "L = 2: 7.38, L = 10: 7.45", *_mnist(records, "L = 10 − L = 2, SGLD")],
        [
            "SGHMC improves on SGLD (IS)",
            "7.45 → 7.47, revised 7.48 → 7.56",
            *_mnist(records, "SGHMC − SGLD, L = 10"),
        ],
        ["Inclusive-NRF is as good as SNGAN", "IS 7.54 / 7.58 (CNN), 8.28 / 8.22 (ResNet)", *_against_sngan(records)],
        ["It costs 1.6 times SNGAN's time", "35 h / 22 h", *_cost(records)],
        ["Codes can be interpolated", "a figure", *_interpolation(records)],
        *(_detection(records, "mnist-one-class", "mnist", sampler, "released") for sampler in SAMPLERS),
        *(_detection(records, "cifar10-one-class", "cifar10", sampler, "released, half width") for sampler in SAMPLERS),
    ]
    return Table(["claim", "the paper", "ours", "holds here"], lines)


def _mnist(records: Records, name: str) -> tuple[str, str]:
    found = [row for row in _rows(records, MNIST).all if row.method == name and row.metric == "IS-mnist"]
    if not found:
        return "", NOT_RUN
    texts = "; ".join(f"{row.case}: {between(row)}" for row in found)
    return f"IS-mnist, difference: {texts}", "; ".join(f"{row.case}: {said(row)}" for row in found)


def _against_sngan(records: Records) -> tuple[str, str]:
    rows = _rows(records, "cifar10-generation")
    row = rows.find(AGAINST_SNGAN, "FID-c10", preset="best")
    if row is not None and row.n > 1:
        # A claim of "as good as" holds unless SNGAN is better for sure.
        worse = said(row, smaller_is_better=True) == "no"
        return f"FID-c10 − SNGAN's, the same time, {row.n} seeds: {between(row)}", "no" if worse else "not refuted"
    both = [rows.find(m, "FID-c10", preset="best", case="generation") for m in ("inclusive-NRF", "SNGAN")]
    if both[0] is None or both[1] is None:
        return "", NOT_RUN
    text = f"FID-c10 {both[0].mean:.2f} / {both[1].mean:.2f} with the same time, one seed"
    return text, "cannot be said by one seed"


def _cost(records: Records) -> tuple[str, str]:
    rows, seconds = _rows(records, "cifar10-generation"), []
    for method in ("inclusive-NRF", "SNGAN"):
        found = [rows.find(method, metric, preset="best") for metric in ("minutes", "iterations")]
        if found[0] is None or found[1] is None:
            return "", NOT_RUN
        seconds.append(60 * found[0].mean / found[1].mean)
    ratio = seconds[0] / seconds[1]
    text = f"{seconds[0]:.2f} / {seconds[1]:.2f} s per iteration (CNN, L = 1): {ratio:.2f} times"
    return text, "less" if ratio < 1.5 else "yes"


def _interpolation(records: Records) -> tuple[str, str]:
    row = _rows(records, "interpolation").find("inclusive-NRF", "largest step over the mean")
    if row is None:
        return "", NOT_RUN
    return f"largest of eleven steps over the mean one: {row.mean:.2f}", "yes" if row.mean < 2 else "no"


def _detection(records: Records, name: str, dataset: str, sampler: str, setting: str) -> list[str]:
    """By the mean over classes, which there is once all of them are run."""
    rows = _rows(records, name)
    paper = quoted_mean(dataset, sampler)
    what = "MNIST" if dataset == "mnist" else "CIFAR-10, pixels"
    head = [f"One-class {what}, {sampler}: AUROC", f"{paper:.2f} (best epoch on test images)"]
    found = {
        column: rows.find(f"inclusive-NRF, {sampler}", "AUROC", preset=setting, column=column)
        for column in ("last", "selected", "oracle")
    }
    nearest = rows.find("1-NN", "AUROC")
    oracle, last = found["oracle"], found["last"]
    if oracle is None or last is None or nearest is None:
        return [*head, "", NOT_RUN]
    texts = ", ".join(f"{column} {row.mean:.1f}" for column, row in found.items() if row is not None)
    if oracle.mean < paper - 1:
        verdict = "no"
    else:
        verdict = "yes" if last.mean > paper - 1 else "as the best epoch on test images only"
    return [*head, f"`{setting}`: {texts}; 1-NN {nearest.mean:.1f}", verdict]


TABLES: dict[str, Callable[[Records], Table]] = {
    "mnist-generation, scores": mnist_scores,
    "mnist-generation, differences": mnist_differences,
    "mnist-generation, steps": mnist_steps,
    "claims about images": claims,
}
