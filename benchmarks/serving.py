"""Measure `nrf serve` on this machine: speed, memory, and what clients see when it is killed.

    python benchmarks/serving.py                                  # all parts, about 12 minutes
    python benchmarks/serving.py one-row batches --seconds 10     # some, short
    python benchmarks/serving.py kill --results results           # and writes results/serving.json, of committed code

- ``one-row``: 64 clients, each with one row per request, one after the other on a kept connection. Goal: no error,
  99 % of the answers within 50 ms, at least 1,000 rows per second.
- ``batches``: requests of 1,000 rows as JSON and as Arrow, against ``score_samples`` of the same rows in this process.
  Goal: at least 80 % of its speed.
- ``memory``: resident memory of the service under the load of ``one-row`` with a batch beside it. Goal: flat, which is
  to say at most 5 % more at the end than after a fifth of the time.
- ``kill``: SIGKILL and start again under load, several times. Goal: clients see refused and reset connections, and no
  answer that is wrong.

A detector of 20 columns, one of them of levels, is fitted first. Every answer is compared with ``score_samples``. The
client is made of bare sockets and runs in this process, on the same machine. Only 127.0.0.1 is used. Prints a line for
each measurement; exits 1 if an answer was wrong or a goal was missed. A record keeps the parts that were measured
before; how many cores other processes kept busy meanwhile is in it, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from nrf import NRFDetector
from nrf.reproduce.runner.record import Row
from speed.record import make_record, require_committed, write_beside

PARTS = ("one-row", "batches", "memory", "kill")
ROWS = 2000
"""Different rows that are asked for."""
ROUNDING = 1e-5
"""How far the rows beside it may move a score, as in ``nrf.detect.calibration``."""
WAIT = 300.0
"""Seconds for the service to start."""


def make_table(n_rows: int, seed: int) -> pa.Table:
    """Nineteen numbers that depend on each other, and a column of levels."""
    rng = np.random.default_rng(seed)
    mixing = np.eye(19) + 0.3 * np.random.default_rng(0).normal(size=(19, 19))
    numbers = rng.normal(size=(n_rows, 19)) @ mixing
    levels = np.array(["red", "green", "blue"])[rng.integers(0, 3, n_rows)]
    return pa.table({**{f"x{i}": numbers[:, i] for i in range(19)}, "colour": levels})


@dataclass(frozen=True)
class Clocks:
    """Seconds that have passed, and seconds of processor time."""

    wall: float
    everybody: float
    client: float
    service: float

    def since(self, before: Clocks) -> Clocks:
        """From one moment to another."""
        return Clocks(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    def others(self) -> float:
        """Cores that other processes kept busy."""
        return max(0.0, self.everybody - self.client - self.service) / self.wall


class Service:
    """`nrf serve` in a process of its own."""

    def __init__(self, model: Path) -> None:
        self.model = model
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [sys.executable, "-m", "nrf", "serve", str(self.model), "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.process.kill()
        raise SystemExit("the service did not start")

    def end(self, how: int = signal.SIGTERM) -> None:
        """End it by a signal and wait for that."""
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait(WAIT)

    def clocks(self) -> Clocks:
        """Seconds so far: of the clock, and of processor time of all processes, of this one and of the service."""
        assert self.process is not None
        ticks = os.sysconf("SC_CLK_TCK")
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
        everybody = (user + nice + system + irq + softirq) / ticks
        own = (int(fields[11]) + int(fields[12])) / ticks
        return Clocks(time.perf_counter(), everybody, time.process_time(), own)

    def resident(self) -> float:
        """Resident memory in MiB."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass
class Tally:
    """What clients have seen."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    wrong: int = 0
    broken: int = 0
    """Connections that were refused or reset."""

    def counts(self) -> dict[str, float]:
        """How many answers came, and what was wrong."""
        return {
            "answers": len(self.seconds),
            "errors": len(self.errors),
            "wrong answers": self.wrong,
            "broken connections": self.broken,
        }

    def percentile(self, q: float) -> float:
        """Of the time to an answer, in ms."""
        return 1000 * float(np.percentile(self.seconds, q)) if self.seconds else float("nan")


class Client(asyncio.Protocol):
    """One connection that asks for one row after the other until it is told to stop."""

    def __init__(self, requests: list[bytes], wanted: list[float], first: int, tally: Tally) -> None:
        self.requests, self.wanted, self.at, self.tally = requests, wanted, first, tally
        self.stopping = False
        self.done = asyncio.get_running_loop().create_future()
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._ask()

    def _ask(self) -> None:
        self.at = (self.at + 1) % len(self.requests)
        self.started = time.perf_counter()
        self.transport.write(self.requests[self.at])

    def data_received(self, data: bytes) -> None:
        """Look whether the answer is whole; then ask for the next row."""
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        place = self.buffer.lower().index(b"content-length:") + 15
        length = int(self.buffer[place : self.buffer.index(b"\r", place)])
        if len(self.buffer) < head + 4 + length:
            return
        self.tally.seconds.append(time.perf_counter() - self.started)
        self._judge(self.buffer[9:12], self.buffer[head + 4 :])
        self.buffer = b""
        if self.stopping:
            self.transport.close()
        else:
            self._ask()

    def _judge(self, status: bytes, body: bytes) -> None:
        if status != b"200":
            self.tally.errors.append(f"{status!r} {body[:200]!r}")
            return
        place = body.index(b'"scores":[') + 10
        wanted = self.wanted[self.at]
        if abs(float(body[place : body.index(b"]", place)]) - wanted) > ROUNDING * max(1.0, abs(wanted)):
            self.tally.wrong += 1

    def connection_lost(self, error: Exception | None) -> None:
        """The end, or a service that is gone."""
        if not self.stopping:
            self.tally.broken += 1
        if not self.done.done():
            self.done.set_result(None)


async def load(
    service: Service,
    clients: int,
    seconds: float,
    rows: list[bytes],
    wanted: list[float],
    *,
    until: asyncio.Event | None = None,
) -> Tally:
    """So many clients for some seconds, or until an event.

    Args:
        service: Whom they ask.
        clients: How many.
        seconds: How long; with an event, at least so long.
        rows: Requests of one row each.
        wanted: Their scores.
        until: Go on until it is set, and connect again where a connection is refused or reset.
    """
    tally, loop, living = Tally(), asyncio.get_running_loop(), set[Client]()
    end = time.monotonic() + seconds

    def over() -> bool:
        return time.monotonic() >= end and (until is None or until.is_set())

    async def keep(i: int) -> None:
        while not over():
            try:
                _, client = await loop.create_connection(
                    lambda: Client(rows, wanted, i * 31, tally), "127.0.0.1", service.port
                )
            except OSError:
                tally.broken += 1
                await asyncio.sleep(0.1)
                continue
            living.add(client)
            await client.done
            living.discard(client)
            if until is None:
                return

    tasks = [asyncio.create_task(keep(i)) for i in range(clients)]
    while not over() and not all(task.done() for task in tasks):
        await asyncio.sleep(0.05)
    for client in living:
        client.stopping = True
    await asyncio.wait_for(asyncio.gather(*tasks), 30)
    return tally


def request(port: int, body: bytes, kind: str = "application/json") -> bytes:
    """A request as bytes."""
    head = (
        f"POST /score HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def ask(connection: socket.socket, message: bytes) -> bytes:
    """Send a request and read the body of its answer."""
    connection.sendall(message)
    data = b""
    while (head := data.find(b"\r\n\r\n")) < 0:
        data += connection.recv(1 << 20)
    place = data.lower().index(b"content-length:") + 15
    length = int(data[place : data.index(b"\r", place)])
    while len(data) < head + 4 + length:
        data += connection.recv(1 << 20)
    if data[9:12] != b"200":
        raise SystemExit(f"the service refused: {data[head + 4 :][:300]!r}")
    return data[head + 4 :]


@dataclass
class Bench:
    """The service, rows to ask for, and what was missed."""

    service: Service
    detector: NRFDetector
    table: pa.Table
    scores: list[float]
    missed: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def goal(self, met: bool, text: str) -> None:
        """Print a line with whether its goal is met."""
        print(f"{'ok    ' if met else 'MISSED'} {text}", flush=True)
        if not met:
            self.missed.append(text)

    def found(self, part: str, numbers: dict[str, float], case: str | None = None, n: int = 1) -> None:
        """Keep numbers of a part for the record."""
        place = {"preset": self.detector.field, "case": case}
        self.rows += [Row(part, metric, float(value), n=n, **place) for metric, value in numbers.items()]

    def single_rows(self) -> list[bytes]:
        """Requests of one row each."""
        return [request(self.service.port, json.dumps({"rows": [row]}).encode()) for row in self.table.to_pylist()]

    def one_row(self, clients: int, seconds: float) -> None:
        """Many clients, one row each."""
        rows = self.single_rows()
        asyncio.run(load(self.service, clients, min(2.0, seconds), rows, self.scores))  # warm
        before = self.service.clocks()
        tally = asyncio.run(load(self.service, clients, seconds, rows, self.scores))
        passed = self.service.clocks().since(before)
        rate = len(tally.seconds) / passed.wall
        each = 1000 / max(1, len(tally.seconds))
        own, busy = each * passed.client, each * passed.service
        p50, p99 = tally.percentile(50), tally.percentile(99)
        self.found(
            "one-row",
            {
                "clients": clients,
                "seconds": seconds,
                **tally.counts(),
                "rows per second": rate,
                "ms to an answer, median": p50,
                "ms to an answer, 99 % quantile": p99,
                "ms of processor per request, service": busy,
                "ms of processor per request, client": own,
                "cores that others kept busy": passed.others(),
            },
        )
        self.goal(
            not tally.errors and not tally.wrong and not tally.broken and p99 <= 50 and rate >= 1000,
            f"one-row: {clients} clients, {len(tally.seconds)} requests in {seconds:g} s: {rate:.0f} rows/s, "
            f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, {len(tally.errors)} errors, {tally.wrong} wrong, "
            f"{tally.broken} broken connections; ms of processor per request: service {busy:.2f}, client {own:.2f} "
            f"{''.join(tally.errors[:1])}",
        )

    def batches(self, seconds: float, size: int = 1000) -> None:
        """Requests of many rows, against the same in one process."""
        part = self.table.slice(0, size)
        wanted = self.scores[:size]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, part.schema) as stream:
            stream.write_table(part)
        columns = {"columns": part.column_names, "rows": [list(row.values()) for row in part.to_pylist()]}
        bodies = {
            "Arrow": request(self.service.port, sink.getvalue().to_pybytes(), "application/vnd.apache.arrow.stream"),
            "JSON, names once": request(self.service.port, json.dumps(columns).encode()),
            "JSON, rows by name": request(self.service.port, json.dumps({"rows": part.to_pylist()}).encode()),
        }
        with socket.create_connection(("127.0.0.1", self.service.port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wrong = 0
            for name, message in bodies.items():
                if json.loads(ask(connection, message))["scores"] != wanted:
                    wrong += 1
                    self.goal(False, f"batches: {name}: wrong scores")
            # Turn by turn, so that whatever else the machine does slows down both.
            own: list[float] = []
            times: dict[str, list[float]] = {name: [] for name in bodies}
            before, end = self.service.clocks(), time.monotonic() + seconds
            while time.monotonic() < end:
                own.append(timed(lambda: self.detector.score_samples(part)))
                for name, message in bodies.items():
                    times[name].append(timed(lambda m=message: ask(connection, m)))
        base = float(np.median(own))
        passed = self.service.clocks().since(before)
        self.found("batches", {"seconds": seconds, "rows per request": size, "wrong answers": wrong})
        self.found("batches", {"cores that others kept busy": passed.others()})
        self.found("batches", {"ms, median": 1000 * base}, "score_samples", len(own))
        for name, found in times.items():
            ratio = base / float(np.median(found))
            self.found("batches", {"ms, median": 1000 * float(np.median(found))}, name, len(found))
            self.found("batches", {"share of the speed of score_samples": ratio}, name, len(found))
            self.goal(
                ratio >= 0.8,
                f"batches: {size} rows as {name}: {1000 * float(np.median(found)):.1f} ms, score_samples "
                f"{1000 * base:.1f} ms: {100 * ratio:.0f} % of its speed ({len(own)} turns)",
            )

    def memory(self, clients: int, minutes: float) -> None:
        """Resident memory under load."""
        rows, found, total = self.single_rows(), list[float](), dict[str, float]()
        steps = max(10, round(minutes * 6))
        before = self.service.clocks()
        for _ in range(steps):
            tally = asyncio.run(load(self.service, clients, 60 * minutes / steps, rows, self.scores))
            if tally.errors or tally.wrong or tally.broken:
                self.goal(False, f"memory: {tally.errors[:1]}, {tally.wrong} wrong, {tally.broken} broken")
            total = {name: total.get(name, 0) + value for name, value in tally.counts().items()}
            found.append(self.service.resident())
        passed = self.service.clocks().since(before)
        early, late = float(np.median(found[steps // 5 : steps // 5 + 3])), float(np.median(found[-3:]))
        self.found(
            "memory",
            {
                "clients": clients,
                "minutes": minutes,
                **total,
                "MiB after a fifth": early,
                "MiB at the end": late,
                "MiB at most": max(found),
                "cores that others kept busy": passed.others(),
            },
        )
        self.goal(
            late <= 1.05 * early,
            f"memory: {minutes:g} minutes of {clients} clients: {early:.0f} MiB after a fifth, {late:.0f} MiB at the "
            f"end, most {max(found):.0f} MiB",
        )

    def kill(self, clients: int, times: int, seconds: float) -> None:
        """SIGKILL and start again under load, which goes on until the last start has answered for some seconds."""
        rows = self.single_rows()

        async def run() -> Tally:
            done = asyncio.Event()
            asked = asyncio.create_task(load(self.service, clients, 0.0, rows, self.scores, until=done))
            for _ in range(times):
                await asyncio.sleep(seconds)
                await asyncio.to_thread(self.service.end, signal.SIGKILL)
                await asyncio.to_thread(self.service.start)
            await asyncio.sleep(seconds)
            done.set()
            return await asked

        began = time.monotonic()
        tally = asyncio.run(run())
        took = time.monotonic() - began
        after = asyncio.run(load(self.service, clients, 1.0, rows, self.scores))
        self.found("kill", {"clients": clients, "kills": times, "seconds": took, **tally.counts()})
        self.found("kill", {"answers in the second after": len(after.seconds), "errors after": len(after.errors)})
        self.goal(
            not tally.errors and not tally.wrong and bool(after.seconds) and not after.errors and tally.broken > 0,
            f"kill: {times} times in {took:.0f} s under {clients} clients: {len(tally.seconds)} answers, "
            f"{tally.wrong} wrong, {len(tally.errors)} errors, {tally.broken} refused or reset connections; "
            f"{len(after.seconds)} answers in the second after {tally.errors[:1]}",
        )


def timed(work: Callable[[], object]) -> float:
    """Seconds of a call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def command(parts: Sequence[str], options: argparse.Namespace) -> str:
    """What to type to measure the same again."""
    threads = os.environ.get("OMP_NUM_THREADS")
    names = ("clients", "seconds", "minutes", "kills", "field", "rows")
    values = {name: getattr(options, name) for name in names}
    settings = " ".join(f"--{name} {f'{v:g}' if isinstance(v, float) else v}" for name, v in values.items())
    start = f"OMP_NUM_THREADS={threads} " if threads else ""
    return f"{start}python benchmarks/serving.py {' '.join(parts)} {settings} --results results"


def main() -> int:
    """Fit, serve, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts; all if none is named")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="of one-row and batches")
    parser.add_argument("--minutes", type=float, default=10.0, help="of memory")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--field", choices=("product", "density"), default="product")
    parser.add_argument("--rows", type=int, default=5000, help="training rows")
    parser.add_argument("--results", type=Path, help="folder for serving.json")
    options = parser.parse_args()
    if not (0 < options.clients <= 256 and 0 < options.seconds <= 600 and 0 < options.minutes <= 60):
        parser.error("at most 256 clients, 600 seconds and 60 minutes")
    parts = options.parts or PARTS
    require_committed(options.results)
    began = time.time()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Path(folder) / "model"
        NRFDetector(field=options.field, random_state=0).fit(make_table(options.rows, 1)).save(model)
        detector, table = NRFDetector.load(model), make_table(ROWS, 2)
        service = Service(model)
        service.start()
        bench = Bench(service, detector, table, detector.score_samples(table).tolist())
        try:
            if "one-row" in parts:
                bench.one_row(options.clients, options.seconds)
            if "batches" in parts:
                bench.batches(options.seconds)
            if "memory" in parts:
                bench.memory(options.clients, options.minutes)
            if "kill" in parts:
                bench.kill(options.clients, options.kills, 6.0)
        finally:
            service.end()
    if options.results is not None:
        for part in parts:
            bench.found(part, {"training rows": options.rows, "threads": torch.get_num_threads()})
        write_beside(options.results, make_record("serving", command(parts, options), bench.rows, began))
    return 1 if bench.missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
