"""A contract over the registry, parsers on hand-made files, facts of the real data where it is found."""

from __future__ import annotations

import gzip
import json
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nrf import data
from nrf.data import cifar10, gmm, kddcup99, kddcup99_released, mnist
from nrf.errors import DataError, InputError


def _found(name: str) -> bool:
    try:
        return not data.DATASETS[name].files or data.locate(name) is not None
    except DataError:
        return False


EVERY = [
    pytest.param(
        name,
        marks=[]
        if not dataset.files
        else [
            pytest.mark.data,
            pytest.mark.skipif(
                not _found(name), reason=f"{name} not found: set NRF_DATA or run `nrf data fetch {name}`"
            ),
        ],
    )
    for name, dataset in data.DATASETS.items()
]


@pytest.mark.parametrize("name", EVERY)
def test_contract(name: str) -> None:
    dataset = data.DATASETS[name]
    splits = data.resolve(name, fetch=False)
    assert dataset.name == name == splits.name
    assert dataset.event_shape == splits.event_shape
    for rows, labels in ((splits.train, splits.train_labels), (splits.test, splits.test_labels)):
        assert rows is not None
        assert rows.dtype == np.float32
        assert rows.flags.c_contiguous
        assert rows.flags.writeable
        assert rows.shape[1:] == splits.event_shape
        assert np.isfinite(rows).all()
        if labels is not None:
            assert labels.dtype == np.int64
            assert labels.shape == (len(rows),)
        if splits.bounds is not None:
            assert (rows.min(), rows.max()) == splits.bounds
    assert splits.columns is None or (len(splits.columns),) == splits.event_shape


@pytest.mark.parametrize("name", EVERY)
def test_facts_hold(name: str) -> None:
    checks = data.verify(name)
    assert len(checks) > len(data.DATASETS[name].files)
    assert [str(check) for check in checks if not check.ok] == []


@pytest.mark.parametrize("name", ["gmm", "digits"])
def test_same_bytes_twice(name: str) -> None:
    first, second = data.resolve(name), data.resolve(name)
    assert first.train.tobytes() == second.train.tobytes()
    assert first.test is not None
    assert second.test is not None
    assert first.test.tobytes() == second.test.tobytes()


@pytest.mark.parametrize("name", [name for name, dataset in data.DATASETS.items() if dataset.files])
def test_files_need_a_folder(name: str) -> None:
    with pytest.raises(DataError, match=f"{name} is read from files"):
        data.DATASETS[name].load(None)


@pytest.mark.network
@pytest.mark.skipif(os.environ.get("NRF_TEST_NETWORK") != "1", reason="only with NRF_TEST_NETWORK=1")
@pytest.mark.parametrize("name", [name for name, dataset in data.DATASETS.items() if dataset.fetch])
def test_fetch_for_real(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRF_CACHE", str(tmp_path))
    monkeypatch.delenv("NRF_DATA", raising=False)
    data.fetch(name)
    assert all(check.ok for check in data.verify(name))


def test_gmm_modes_lie_on_four_rings() -> None:
    means = gmm.means()
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), np.repeat([2, 3, 4, 5], 8))
    angle = np.degrees(np.arctan2(means[:, 1], means[:, 0])) % 45
    np.testing.assert_allclose(angle[8:16], 22.5)
    np.testing.assert_allclose(np.minimum(angle[16:24], 45 - angle[16:24]), 0, atol=1e-9)


def test_digits_are_split_class_by_class() -> None:
    splits = data.resolve("digits")
    assert splits.train_labels is not None
    assert splits.test_labels is not None
    difference = np.bincount(splits.train_labels) - np.bincount(splits.test_labels)
    assert set(difference.tolist()) <= {0, 1}


# --- MNIST ---


def _idx(array: np.ndarray) -> bytes:
    shape = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()


def test_idx_round_trip() -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    np.testing.assert_array_equal(mnist.parse_idx(_idx(array), "file", ndim=3), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "starts with nothing, expected 00000803"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 1, 7]), "starts with 00000801, expected 00000803"),
        (bytes([0, 0, 8, 3, 0, 0]), "ends within its header"),
        (_idx(np.zeros((2, 2, 2)))[:-1], "announces 8 values and holds 7"),
        (_idx(np.zeros((2, 2, 2))) + b"x", "announces 8 values and holds 9"),
    ],
)
def test_a_wrong_idx_file_is_named(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"^train-images.*{message}"):
        mnist.parse_idx(content, "train-images", ndim=3)


def test_mnist_reads_plain_and_compressed_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for k, n in enumerate((5, 3)):
        images = rng.integers(0, 256, (n, 28, 28))
        images[0, 0, :2] = 0, 255
        (tmp_path / mnist.FILES[2 * k].name).write_bytes(_idx(images))
        labels = gzip.compress(_idx(np.arange(n)))
        (tmp_path / f"{mnist.FILES[2 * k + 1].name}.gz").write_bytes(labels)
    splits = mnist.load(tmp_path)
    assert splits.train.shape == (5, 784)
    assert splits.train[0, :2].tolist() == [0.0, 1.0]
    assert splits.test_labels is not None
    assert splits.test_labels.tolist() == [0, 1, 2]


# --- CIFAR-10 ---


def _package(folder: Path, n: int) -> tuple[np.ndarray, list[int]]:
    """Write what the npm package holds, with n images a file; return all pixels (6n, 1024, 3) and labels."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (6 * n, 1024, 3), dtype=np.uint8)
    labels = rng.integers(0, 10, 6 * n).tolist()
    folder.mkdir(exist_ok=True)
    for k, file in enumerate(cifar10.FILES):
        name = file.name.replace(".bin", ".png")
        Image.fromarray(pixels[k * n : (k + 1) * n]).save(folder / name)
    (folder / "train_lables.json").write_text(json.dumps(labels[: 5 * n]))
    (folder / "test_lables.json").write_text(json.dumps(labels[5 * n :]))
    return pixels, labels


def _png(width: int, height: int) -> bytes:
    """The beginning of a PNG of that size: all that is read before the pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


def test_cifar_pngs_become_the_binary_version(tmp_path: Path) -> None:
    pixels, labels = _package(tmp_path / "package", n=2)
    (tmp_path / "out").mkdir()
    cifar10.convert(tmp_path / "package", tmp_path / "out", lambda line: None)
    record = (tmp_path / "out" / "data_batch_1.bin").read_bytes()[:3073]
    assert record[0] == labels[0]
    assert record[1:1025] == pixels[0, :, 0].tobytes()
    assert record[2049:] == pixels[0, :, 2].tobytes()

    splits = cifar10.load(tmp_path / "out")
    assert splits.train.shape == (10, 3, 32, 32)
    assert splits.train_labels is not None
    assert splits.train_labels.tolist() == labels[:10]
    back = np.rint((splits.train + 1) * 127.5).astype(np.uint8).transpose(0, 2, 3, 1).reshape(10, 1024, 3)
    np.testing.assert_array_equal(back, pixels[:10])


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "0 bytes"), (bytes(3072), "3072 bytes"), (b"\x0a" + bytes(3072), "label 10")],
)
def test_a_wrong_cifar_file_is_named(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=rf"^test_batch\.bin has .*{message}"):
        cifar10.parse_records(content, "test_batch.bin")


def test_a_wrong_cifar_package_is_named(tmp_path: Path) -> None:
    _package(tmp_path, n=1)
    Image.new("L", (1024, 1)).save(tmp_path / "data_batch_2.png")
    with pytest.raises(DataError, match=r"data_batch_2\.png is a L image"):
        cifar10.convert(tmp_path, tmp_path, lambda line: None)
    (tmp_path / "data_batch_2.png").write_bytes(_png(60_000, 60_000))
    with pytest.raises(DataError, match=r"data_batch_2\.png is not a readable PNG: Image size"):
        cifar10.convert(tmp_path, tmp_path, lambda line: None)
    (tmp_path / "data_batch_2.png").write_bytes(_png(10_000, 10_000))  # no error of Pillow's, but not unpacked either
    with pytest.raises(
        DataError, match=r"data_batch_2\.png is a RGB image of 10000×10000 pixels, expected RGB and 1024"
    ):
        cifar10.convert(tmp_path, tmp_path, lambda line: None)
    (tmp_path / "data_batch_2.png").write_bytes(_png(1024, 0))
    with pytest.raises(DataError, match=r"data_batch_2\.png is (not a readable PNG|a RGB image of 1024×0 pixels)"):
        cifar10.convert(tmp_path, tmp_path, lambda line: None)
    (tmp_path / "data_batch_2.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"data_batch_2\.png is not a readable PNG"):
        cifar10.convert(tmp_path, tmp_path, lambda line: None)
    (tmp_path / "train_lables.json").write_text("[11]")
    with pytest.raises(DataError, match=r"train_lables\.json is not a list of labels"):
        cifar10.convert(tmp_path, tmp_path, lambda line: None)
    (tmp_path / "train_lables.json").write_text("[")
    with pytest.raises(DataError, match=r"train_lables\.json is not a readable list"):
        cifar10.convert(tmp_path, tmp_path, lambda line: None)


# --- KDD Cup 1999 ---


def _line(label: str, *, duration: float = 0, protocol: str = "tcp", land: int = 0) -> str:
    fields = {name: "0" for name in kddcup99.FEATURES}
    fields |= {"duration": str(duration), "protocol_type": protocol, "service": "http", "flag": "SF"}
    fields |= {"land": str(land), "num_outbound_cmds": "5"}
    return ",".join([*fields.values(), label])


def _kdd(folder: Path, lines: list[str]) -> Path:
    (folder / kddcup99.FILE.name).write_bytes(gzip.compress("\n".join(lines).encode()))
    return folder


def test_kdd_encoding_and_protocol(tmp_path: Path) -> None:
    lines = [_line("smurf.", duration=10 + i, protocol="icmp", land=i % 2) for i in range(16)]
    lines += [_line("normal.", duration=-3), _line("normal.", duration=1000)] * 2
    splits = kddcup99.split(kddcup99.read(_kdd(tmp_path, lines)), seed=3)
    assert splits.columns is not None
    assert " ".join(splits.columns[34:]) == (
        "protocol_type=icmp protocol_type=tcp service=http flag=SF land=0 land=1 logged_in=0 is_host_login=0 "
        "is_guest_login=0"
    )
    assert splits.train.shape[1] == 34 + 9
    assert splits.test is not None
    assert splits.test_labels is not None
    assert len(splits.test) == 10
    # Attacks are normal: every training row is one, and the anomalies are the tcp rows.
    icmp, tcp = splits.columns.index("protocol_type=icmp"), splits.columns.index("protocol_type=tcp")
    assert splits.train[:, icmp].min() == 1
    np.testing.assert_array_equal(splits.test[:, tcp], splits.test_labels)
    # Scaled by the training rows alone: these span [0, 1], an anomaly outside of them lies outside.
    assert (splits.train[:, 0].min(), splits.train[:, 0].max()) == (0, 1)
    outside = splits.test[splits.test_labels == 1, 0]
    assert len(outside)
    assert ((outside < 0) | (outside > 1)).all()
    constant = splits.columns.index("num_outbound_cmds")
    assert not splits.train[:, constant].any()
    assert not splits.test[:, constant].any()


def test_kdd_splits_follow_the_seed(tmp_path: Path) -> None:
    lines = [_line("smurf.", duration=i) for i in range(20)]
    table = kddcup99.read(_kdd(tmp_path, lines))
    a, again, b = (kddcup99.split(table, seed) for seed in (0, 0, 1))
    assert a.train.tobytes() == again.train.tobytes()
    assert a.train.tobytes() != b.train.tobytes()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "is empty"),
        ([_line("smurf."), "1,2,3"], "line 2: 3 fields, expected 42"),
        ([_line("smurf.", duration="x")], "feature duration: could not convert"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_kdd_file_is_named(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        kddcup99.read(_kdd(tmp_path, lines))


def test_kdd_needs_attacks_to_train_on(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no attack rows"):
        kddcup99.split(kddcup99.read(_kdd(tmp_path, [_line("normal.")] * 4)), seed=0)


def test_only_random_splits_have_a_number(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="digits has one split, number 0; got 3"):
        data.resolve("digits", split=3)


def test_a_split_checks_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"kddcup\.data_10_percent\.gz: found"):
        data.resolve("kddcup99", _kdd(tmp_path, [_line("smurf.")]), split=3)


@pytest.mark.data
@pytest.mark.skipif(not _found("kddcup99"), reason="kddcup99 not found: set NRF_DATA")
def test_kdd_facts_of_the_whole_file() -> None:
    folder = data.locate("kddcup99")
    assert folder is not None
    table = kddcup99.read(folder)
    assert table.labels.shape == (494_021,)
    assert table.labels.sum() == 97_278
    assert round(100 * float(table.labels.mean()), 2) == 19.69
    assert len(table.continuous) == 145_586
    assert table.continuous.shape[1] == 34
    widths = [sum(c.startswith(f"{name}=") for c in table.columns) for name in kddcup99.CATEGORICAL]
    assert widths == [3, 66, 11, 2, 2, 1, 2]
    assert (table.one_hot.sum(axis=1) == 7).all()


# ------------------------------------------------------------------------------------------------- the released array


def _released(folder: Path, array: np.ndarray, name: str = "kdd") -> Path:
    np.savez(folder / kddcup99_released.FILE.name, **{name: array})
    return folder


def test_the_released_array_has_labels_in_its_last_column(tmp_path: Path) -> None:
    labels = np.repeat([0, 1], [30, 10])
    array = np.column_stack([np.arange(40.0), labels / 2, labels])
    found = kddcup99_released.read(_released(tmp_path, array))
    np.testing.assert_array_equal(found.labels, labels)
    np.testing.assert_array_equal(found.rows, array[:, :2].astype(np.float32))
    splits = kddcup99_released.draw_split(tmp_path, 5)
    assert splits.test is not None
    assert len(splits.test) == 20
    assert (splits.train[:, 0] < 30).all()  # the first thirty rows are normal
    assert not set(splits.train[:, 0]) & set(splits.test[:, 0])
    assert set(splits.train[:, 0]) != set(kddcup99_released.draw_split(tmp_path, 6).train[:, 0])


@pytest.mark.parametrize(("array", "name"), [(np.zeros((4, 3)), "other"), (np.zeros(4), "kdd")])
def test_a_wrong_released_array_is_named(tmp_path: Path, array: np.ndarray, name: str) -> None:
    with pytest.raises(DataError, match=r"kdd_cup_released.npz.*`kdd`"):
        kddcup99_released.read(_released(tmp_path, array, name))
    (tmp_path / kddcup99_released.FILE.name).write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"kdd_cup_released.npz cannot be read"):
        kddcup99_released.read(tmp_path)


def test_the_released_array_has_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NRF_CACHE", str(tmp_path))
    monkeypatch.delenv("NRF_DATA", raising=False)
    with pytest.raises(DataError, match=r"no known source.*set NRF_DATA to a folder with kdd_cup_released.npz"):
        data.fetch("kddcup99-released")
    with pytest.raises(DataError, match=r"not found.*: set NRF_DATA to a folder with kdd_cup_released.npz"):
        data.resolve("kddcup99-released")


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.skipif(not (_found("kddcup99") and _found("kddcup99-released")), reason="both files are needed")
def test_the_released_array_has_the_rows_of_the_file_in_its_order() -> None:
    folder, other = data.locate("kddcup99"), data.locate("kddcup99-released")
    assert folder is not None
    assert other is not None
    table, array = kddcup99.read(folder), kddcup99_released.read(other)
    np.testing.assert_array_equal(table.labels, array.labels)
    np.testing.assert_array_equal(kddcup99.divide(table, 7).test, array.divide(7).test)
    flag = [i for i, name in enumerate(table.columns[34:]) if name == "logged_in=1"]
    logged_in = table.one_hot[table.index][:, flag[0]]
    assert any(np.array_equal(array.rows[:, column], logged_in) for column in range(80, 118))
