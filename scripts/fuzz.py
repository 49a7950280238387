"""Hostile input for every reader: one sentence or a right answer, never another exception, nothing out of proportion.

    python scripts/fuzz.py                          a thousand inputs for each reader
    python scripts/fuzz.py --examples 20000 --only npz --seed 7
    python scripts/fuzz.py --keep findings          what was found is written there, to make a test of

An input is a right one, changed: bytes flipped, cut, doubled and replaced, or, where a format has a structure, one of
its values replaced by something that does not belong there. Reading it must end in `AdafedError` or in a value. All
else is a finding, and so is more than half a gigabyte of memory or ten seconds of processor time for a few kilobytes.
"""

from __future__ import annotations

import argparse
import copy
import gzip
import io
import json
import os
import pickle
import random
import resource
import shutil
import signal
import sqlite3
import struct
import sys
import tarfile
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import adafed
from adafed import AdafedError
from adafed.config.experiments import names as experiments
from adafed.config.experiments import packaged
from adafed.config.loading import load_config
from adafed.config.merging import parse_settings
from adafed.config.studies import load_study
from adafed.data import cifar, fashion, femnist, label_noise, shakespeare, tinyimagenet
from adafed.data.download import unpack
from adafed.data.folder import FolderFederation
from adafed.page.reading import read_run
from adafed.runs.checkpoints import Checkpoints
from adafed.runs.description import begun_with
from adafed.runs.summary import summarise
from adafed.server.memory import Memory
from adafed.server.optimizers import optimizer
from adafed.server.saved import digest
from adafed.server.schedules import schedule
from adafed.server.state import Server, ServerState
from adafed.studies import kept as kept_files
from adafed.studies import results

MOST_MEMORY, MOST_SECONDS = 2**29, 10.0
Random = random.Random
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**20, 10**400, 0.5, 1e308, float("nan"), float("inf"), "",
    "a", "mean", "\x00", "\ud800", "é" * 300, "\x1b[31m", [], {}, [[]], [None], [1, "a"], {"a": 1}, {"name": 3},
]  # fmt: skip
TOKENS = [
    b"\x00", b"\xff" * 4, b"\xff" * 8, b"\x7f\xff\xff\xff", b"[" * 2000, b"{" * 2000, b"(" * 2000, b'"', b"'", b"-1",
    b"1e999", b"9" * 30, b"9" * 5000, b"nan", b"null", b"true", b"\n", b"\x1b]0;", b"..", b"/", b":", b"\xed\xa0\x80",
]  # fmt: skip


def changed(random: Random, content: bytes) -> bytes:
    """Bytes, changed in a few places."""
    blob = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        at = random.randrange(len(blob) + 1)
        how = random.randrange(8)
        if how == 0 and blob:
            blob[min(at, len(blob) - 1)] ^= 1 << random.randrange(8)
        elif how == 1 and blob:
            blob[min(at, len(blob) - 1)] = random.randrange(256)
        elif how == 2:
            del blob[at:]
        elif how == 3:
            del blob[at : at + random.randrange(1, 40)]
        elif how == 4:
            blob[at:at] = random.choice(TOKENS)
        elif how == 5:
            blob[at : at + 4] = struct.pack(random.choice("<>") + "I", random.choice((0, 1, 2**16, 2**31, 2**32 - 1)))
        elif how == 6:
            length = random.randrange(1, 64)
            blob[at:at] = blob[at : at + length]
        else:
            start = random.randrange(len(blob) + 1)
            blob[at:at] = blob[start : start + random.randrange(1, 64)]
    return bytes(blob)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in children:
        yield from places(one, (*path, key))


def replaced(random: Random, document: Any) -> Any:
    """A JSON document with a value replaced by something else, taken away, or put beside itself."""
    document = copy.deepcopy(document)
    for _ in range(random.choice((1, 1, 2, 3))):
        path = random.choice(list(places(document)))
        if not path:
            document = random.choice(ODD) if random.random() < 0.1 else document
            continue
        there = document
        for step in path[:-1]:
            there = there[step]
        how = random.randrange(6)
        if how == 0:
            del there[path[-1]]
        elif how == 1 and isinstance(there, list):
            there.insert(path[-1], copy.deepcopy(there[path[-1]]))
        elif how == 2 and isinstance(there, dict):
            there[random.choice(("", "x", "format", "\ud800", "name"))] = there[path[-1]]
        else:
            there[path[-1]] = copy.deepcopy(random.choice(ODD))
    return document


def json_text(random: Random, document: Any) -> bytes:
    """A document changed as a document, as bytes, or nested beyond all measure."""
    how = random.random()
    text = json.dumps(document if how < 0.3 else replaced(random, document)).encode()
    if how < 0.3:
        return changed(random, text)
    return text if how < 0.97 else random.choice((b"[", b'{"a":')) * 100_000 + text


@dataclass
class Tally:
    """What became of a reader's inputs."""

    examples: int = 0
    refused: int = 0
    findings: list[str] = field(default_factory=list)
    seconds: float = 0.0
    slowest: float = 0.0
    memory: int = 0


class TooSlow(BaseException):
    """Not an `Exception`, so that no reader can take it for a mistake in its file."""


class Reader:
    """Makes an input, and reads it. `name` is what it is called in the table."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def example(self, random: Random) -> Callable[[], object]:
        raise NotImplementedError

    def file(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path


class TOML(Reader):
    name = "TOML: experiments, studies, settings"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.texts = [packaged(name).read_bytes() for name in experiments()]

    def example(self, random: Random) -> Callable[[], object]:
        lines = random.choice(self.texts).split(b"\n")
        for _ in range(random.choice((1, 1, 3))):
            at = random.randrange(len(lines))
            key, equals, _ = lines[at].partition(b"=")
            odd = random.choice((b"-1", b"0", b"1e400", b'""', b'"a"', b"[]", b"{}", b"true", b"nan", b"9" * 400,
                                 b"[[1]]", b"'\xff'", b"{ name = 3 }", b"1979-05-27", b"[" * 5000))  # fmt: skip
            lines[at] = key + equals + odd if equals and random.random() < 0.7 else changed(random, lines[at])
        path = self.file("experiment.toml", b"\n".join(lines))
        profile = random.choice((None, "laptop", "paper", "nonsense"))
        setting = changed(random, b"rule.gamma=5").decode("utf-8", "replace")

        def read() -> None:
            refused(lambda: load_study(path, profile))
            refused(lambda: parse_settings([setting]))
            load_config(path)

        return read


def refused(read: Callable[[], object]) -> bool:
    try:
        read()
    except AdafedError:
        return True
    return False


class LEAF(Reader):
    name = "LEAF JSON, texts of roles"

    def example(self, random: Random) -> Callable[[], object]:
        shutil.rmtree(self.folder, ignore_errors=True)
        images = random.random() < 0.5
        x: list[Any] = [[0.5] * 784] * 2 if images else ["a" * 80] * 2
        y: list[Any] = [1, 2] if images else ["a", "b"]
        user = {"x": x, "y": y}
        document = {"users": ["u", "v"], "num_samples": [2, 2], "user_data": {"u": user, "v": user}}
        kind = "femnist" if images else "shakespeare"
        if random.random() < 0.15:
            self.file("shakespeare/by_role.json", json_text(random, {"A": "word " * 30, "B": "x" * 90}))
            return lambda: shakespeare.load(self.folder)
        for part in ("train", "test"):
            self.file(f"{kind}/{part}/a.json", json_text(random, document))
        return lambda: (femnist if images else shakespeare).load(self.folder)


class Idx(Reader):
    name = "idx"

    def example(self, random: Random) -> Callable[[], object]:
        blob = bytes((0, 0, 8, 3)) + struct.pack(">3I", 3, 28, 28) + bytes(3 * 28 * 28)
        packed = random.random() < 0.5
        inside = random.random() < 0.6
        blob = changed(random, blob) if inside else blob
        blob = gzip.compress(blob, 1) if packed else blob
        path = self.file("images.gz" if packed else "images", blob if inside else changed(random, blob))
        return lambda: fashion.read_idx(path, 3)


class CIFAR(Reader):
    name = "CIFAR, binary and python"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        pixels = np.zeros((2, 3072), np.uint8)
        self.binary = bytes(2 * 3073)
        self.python = pickle.dumps({b"data": pixels, b"labels": [1, 2]}, protocol=2)

    def example(self, random: Random) -> Callable[[], object]:
        kind = random.choice(("binary", "python"))
        version = cifar.VERSIONS["cifar10"][kind]
        path = self.file("batch", changed(random, self.binary if kind == "binary" else self.python))
        return lambda: cifar._read(path, version)


def npy(random: Random, name: str) -> bytes:
    labels = name.startswith("y") if random.random() < 0.9 else random.random() < 0.5
    inputs = (np.zeros((8, 3), np.float32), np.zeros((8, 1, 2, 2), np.uint8), np.zeros((8, 5), np.int64))
    array: Any = np.arange(8) % 3 if labels else random.choice(inputs)
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


class Npz(Reader):
    name = "npz: clients, human labels"

    def example(self, random: Random) -> Callable[[], object]:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        file = io.BytesIO()
        how = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        names = random.sample(("x", "y", "x_test", "y_test", "x_validation", "z"), random.choice((0, 0, 0, 1, 3)))
        with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(file, "w", how) as archive:
            for name in ("x", "y", *names) if random.random() < 0.8 else names:
                whole = npy(random, name)
                blob = whole if random.random() < 0.6 else changed(random, whole[:128]) + whole[128:]
                archive.writestr(f"{name}.npy", blob)
        content = file.getvalue() if random.random() < 0.6 else changed(random, file.getvalue())
        path = self.file(random.choice(("a", "b\x1b", "1" * 50)) + ".npz", content)

        def read() -> None:
            def clients() -> None:
                found = FolderFederation(self.folder, test=0.25, validation=0.25)
                _ = found.classes, found.checksum, found.client(0), found.train_labels(0)

            refused(lambda: label_noise.read_columns(path))
            clients()

        return read


class Pictures(Reader):
    name = "pictures"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from PIL import Image

        self.files = []
        for kind in ("JPEG", "PNG", "GIF", "BMP", "WEBP"):
            file = io.BytesIO()
            Image.fromarray(np.arange(64 * 64 * 3, dtype=np.uint8).reshape(64, 64, 3)).save(file, kind)
            self.files.append(file.getvalue())

    def example(self, random: Random) -> Callable[[], object]:
        path = self.file("picture", changed(random, random.choice(self.files)))
        return lambda: tinyimagenet.read_image(path, lambda image: tinyimagenet.exact(image, 64))


class Archives(Reader):
    name = "archives"

    def example(self, random: Random) -> Callable[[], object]:
        shutil.rmtree(self.folder, ignore_errors=True)
        file = io.BytesIO()
        names = ("data/a", "data/b", "../outside", "/outside", "data/../../outside")
        kind = random.choice(("zip", "tar", "tar.gz"))
        if kind == "zip":
            with zipfile.ZipFile(file, "w") as archive:
                for name in random.sample(names, 3):
                    archive.writestr(name, b"x" * 100)
        else:
            with tarfile.open(fileobj=file, mode="w:gz" if kind == "tar.gz" else "w") as tar:
                for name in random.sample(names, 3):
                    member = tarfile.TarInfo(name)
                    member.size = 100
                    member.type = random.choice((tarfile.REGTYPE, tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE))
                    member.linkname = random.choice(("/etc/passwd", "a", "../../x"))
                    tar.addfile(member, io.BytesIO(b"x" * 100))
        whole = file.getvalue()
        path = self.file(f"deep/er/data.{kind}", whole if random.random() < 0.3 else changed(random, whole))

        def read() -> None:
            try:
                unpack(path, "data")
            finally:
                around = {
                    one.name for one in self.folder.rglob("*") if "data" not in one.relative_to(self.folder).parts
                }
                assert around <= {"deep", "er", path.name}, f"written outside: {around}"

        return read


class SavedStates(Reader):
    name = "checkpoints"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.rule = adafed.rule("fedfa")
        self.server = Server(self.rule, optimizer("adam"), schedule("constant"), 1.0)
        self.first = ServerState(torch.zeros(6), 4)
        outcome = adafed.aggregate(self.rule, torch.ones(2, 4), accuracies=[0.5, 0.6])
        self.state = self.server.step(self.first, outcome, None)
        known = Memory.of([("a", 1), ("b", 1)], torch.ones(2, 4))
        self.remembering = ServerState(
            torch.ones(6), 4, 1, adafed.RuleState({"counts": {"0": 1}}, known, {"0 stall": {"rounds": 2}}),
            self.state.moments, {"3": 1}, {}, {"0": 0.5},
        )  # fmt: skip

    def example(self, random: Random) -> Callable[[], object]:
        shutil.rmtree(self.folder, ignore_errors=True)
        state = random.choice((self.state, self.remembering))
        Checkpoints(self.folder).add(state)
        (path,) = self.folder.glob("round-*")
        if random.random() < 0.4:
            blob = path.read_bytes()
            head = 8 + int.from_bytes(blob[:8], "little")
            path.write_bytes(
                changed(random, blob[:head]) + blob[head:] if random.random() < 0.7 else changed(random, blob)
            )
        else:
            self._rewritten(random, state, path)

        def read() -> None:
            found = Checkpoints(self.folder).newest(lambda state: self.server.unfit(state, self.first, rule=self.rule))
            if found is not None:  # what is accepted can be gone on from
                outcome = adafed.aggregate(
                    self.rule, torch.ones(2, 4), accuracies=[0.5, 0.6], state=found.rule_state, round=2,
                    guards=["stall"], memory="all",
                )  # fmt: skip
                self.server.step(found, outcome, None).packed()

        return read

    def _rewritten(self, random: Random, state: ServerState, path: Path) -> None:
        """With other values in it, and a digest that fits."""
        from safetensors.torch import save_file

        tensors, text = state.packed()
        if random.random() < 0.6:
            text = json.dumps(replaced(random, json.loads(text)))
        else:
            name = random.choice(list(tensors))
            odd = (torch.zeros(0), torch.zeros(3), torch.zeros(6, dtype=torch.int64), torch.zeros(2, 4),
                   torch.tensor(1.0),
                   torch.full((4,), float("nan")), torch.zeros(4, dtype=torch.float16))  # fmt: skip
            tensors[name] = random.choice(odd)
            if random.random() < 0.3:
                del tensors[name]
        save_file(tensors, path, {"state": text, "digest": digest(tensors, text)})


class RunStore(Reader):
    name = "run directories"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.run = Path(tempfile.mkdtemp(dir=folder.parent)) / "run"
        config = adafed.config_from({
            "rounds": 2, "data": {"name": "digits", "keep_classes": [0, 1]}, "partition": {"name": "iid", "clients": 3},
            "model": "logistic", "run": {"workers": 0}, "evaluation": {"every": 1},
        })  # fmt: skip
        list(adafed.simulate(config, directory=self.run))

    def example(self, random: Random) -> Callable[[], object]:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.run, self.folder)
        file = random.choice(
            ("rounds.sqlite", "rounds.sqlite", "cell", "cell", "run.json", "labels.json", "config.toml")
        )
        if file == "cell":
            self._cell(random)
        elif file.endswith(".json"):
            self.file(file, json_text(random, json.loads((self.folder / file).read_bytes())))
        else:
            self.file(file, changed(random, (self.folder / file).read_bytes()))

        def read() -> None:
            every = [refused(lambda: read_run(self.folder)), refused(lambda: begun_with(self.folder))]
            summarise(self.folder)
            if all(every):
                raise AdafedError("refused")

        return read

    def _cell(self, random: Random) -> None:
        db = sqlite3.connect(self.folder / "rounds.sqlite")
        table = random.choice(("rounds", "participants", "evaluations"))
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        odd = random.choice(
            (None, "text", b"\xff\xfe", 10**18, -1, 1e308, 0.5, "[" * 5000, '{"bounded": 3}', "[]", "\x00")
        )
        try:
            with db:
                db.execute(f"UPDATE {table} SET {random.choice(columns)} = ? WHERE round = 2 AND "
                           f"{random.choice(columns)} IS NOT NULL", (odd,))  # fmt: skip
        except sqlite3.Error:
            pass  # a key that must be there, and once
        db.close()


class Results(Reader):
    name = "results files"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        runs = [
            {"method": method, "seed": seed, "rounds": 6, "personalised": False, "at": [2, 4, 6],
             "evaluations": {"mean": [10.0, 20.0, 30.0], "worst_10": [1.0, None, 3.0]}, "settings": {"rate": 1.0}}
            for method in ("A", "B") for seed in (0, 1)
        ]  # fmt: skip
        self.document = {
            "format": 2,
            "title": "t",
            "columns": ["mean", "worst_10"],
            "told": {"profile": "x"},
            "runs": runs,
        }

    def example(self, random: Random) -> Callable[[], object]:
        path = self.file("results.json", json_text(random, self.document))

        def read() -> None:
            kept = kept_files.load(path)
            columns = kept.measures()
            for final in (False, True):
                results.scores(kept, columns, final=final).rendered("markdown")
            for method in kept.methods():
                results.paired(kept, method, columns).rendered("csv")
                results.rounds_to(kept, results.usual_levels(kept, method)).rendered("latex")

        return read


class Flower(Reader):
    name = "Flower messages"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        from flwr.app import ArrayRecord

        from adafed.engines.flower.arrays import Arrays

        try:  # newer versions stamp messages with the process's place in a deployment, and here is none
            from flwr.supercore.task_identity import TaskIdentity

            TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
        except ModuleNotFoundError:
            pass
        self.record = ArrayRecord(
            {"w": self._array(np.zeros((2, 2), np.float32)), "b": self._array(np.zeros(2, np.float32))}
        )
        self.arrays = Arrays.of(self.record)

    def _array(self, numbers: Any) -> Any:
        from flwr.app import Array

        return Array(numbers)

    def example(self, random: Random) -> Callable[[], object]:
        from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MessageType, MetricRecord, RecordDict

        from adafed.engines.flower.replies import Limits, screened

        def array() -> Any:
            whole = self._array(np.zeros(random.choice(((2, 2), (2,), (6,))), random.choice(("f4", "f8", "i8"))))
            data = whole.data if random.random() < 0.4 else changed(random, whole.data)
            shape = random.choice((whole.shape, (10**9, 10**9), (-1,), ()))
            return Array(random.choice((whole.dtype, "float32", "object")), shape, whole.stype, data)

        messages = []
        for node in range(random.randrange(1, 4)):
            metrics: dict[str, Any] = {"num-examples": 10, "client-id": node, "loss": 0.5}
            for _ in range(random.choice((0, 1, 2))):
                key = random.choice(("num-examples", "client-id", "loss", "accuracy", "steps", "x"))
                metrics[key] = random.choice((-1, 0, 2**62, 1e308, float("nan"), float("inf"), 0.5, [1, 2], [0.5]))
            told = json_text(random, {"scaffold": {"a": [1, 2]}}).decode("utf-8", "replace")
            suffix = random.choice(("", "", ":3", ":\x1b[31m"))
            content = {
                f"metrics{suffix}": MetricRecord(metrics),
                f"told{suffix}": ConfigRecord({"told": random.choice((told, 3, b"x"))}),
                random.choice((f"arrays{suffix}", f"update{suffix}")): random.choice(
                    (self.record, ArrayRecord({"w": array(), "b": array()}), ArrayRecord({"w": array()}))
                ),
                f"vectors{suffix}": ArrayRecord({"scaffold.change": array()}),
            }
            dropped = random.choice((None, None, *content))
            content = {key: one for key, one in content.items() if key != dropped}
            asked = Message(RecordDict(), node + 1, MessageType.TRAIN)
            reply = Message(Error(1, "\x1b[31m"), reply_to=asked) if random.random() < 0.1 else Message(
                RecordDict(content), reply_to=asked
            )  # fmt: skip
            messages.append(reply)
        limits = Limits({}, {0: 10}, vectors=("scaffold.change",) if random.random() < 0.5 else ())

        def read() -> None:
            found = screened(messages, self.arrays, torch.zeros(6), limits, ("loss",))
            if not found.replies:
                raise AdafedError("every reply is refused")
            adafed.aggregate(
                adafed.rule("adafed"), [reply.update for reply in found.replies], guards="default",
                losses=[reply.numbers["loss"] for reply in found.replies],
                sizes=[reply.samples for reply in found.replies],
            )  # fmt: skip

        return read


class Aggregation(Reader):
    name = "adafed.aggregate"

    def example(self, random: Random) -> Callable[[], object]:
        kind = random.choice((torch.float16, torch.bfloat16, torch.float32, torch.float64))
        count, length = random.randrange(1, 6), random.randrange(1, 9)
        generator = torch.Generator().manual_seed(random.randrange(2**31))
        size = random.choice((1.0, 1.0, 1e-30, 1e30, torch.finfo(kind).max, torch.finfo(kind).tiny))
        rows: Any = (torch.randn(count, length, generator=generator, dtype=torch.float64) * size).to(kind)
        if random.random() < 0.3:
            rows[random.randrange(count), random.randrange(length)] = random.choice((float("nan"), float("inf"), 0.0))
        odd_rows = (None, 3, "a", [], {}, rows.to_sparse(), rows.to("meta"), rows[0], list(rows), rows.to(torch.int64),
                    [*rows, rows[0][:1]], rows.unsqueeze(0), rows.tolist())  # fmt: skip
        given: dict[str, Any] = {"updates": rows if random.random() < 0.8 else random.choice(odd_rows)}
        given |= {key: [random.random() for _ in range(count)] for key in ("losses", "accuracies", "sizes")}
        given |= {
            "local_lr": 0.1,
            "federation": 9,
            "round": 1,
            "clients": None,
            "state": None,
            "guards": (),
            "memory": 0,
        }
        for _ in range(random.choice((0, 0, 1, 2))):
            odd = random.choice(
                (
                    *ODD,
                    torch.ones(count),
                    torch.ones(2, device="meta"),
                    np.ones(count),
                    object(),
                    "default",
                    adafed.RuleState({"counts": {"0": 1}}),
                    adafed.RuleState({}, guards={"0 veto": {"x": 1}}),
                )
            )
            given[random.choice([key for key in given if key != "updates"])] = odd
        rule = adafed.rule(random.choice(adafed.rules()))

        def read() -> None:
            outcome = adafed.aggregate(rule, **given)
            assert outcome.direction.isfinite().all(), "a direction that is not finite"

        return read


READERS: tuple[type[Reader], ...] = (
    TOML, LEAF, Idx, CIFAR, Npz, Pictures, Archives, SavedStates, RunStore, Results, Flower, Aggregation,
)  # fmt: skip


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """So much processor time, and no more."""

    def end(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fuzzed(kind: type[Reader], examples: int, seed: int, keep: Path | None = None) -> Tally:
    """A reader on so many inputs. The n-th input of a seed is always the same."""
    found = Tally()
    with tempfile.TemporaryDirectory(prefix="adafed-fuzz-") as folder, warnings.catch_warnings():
        reader = kind(Path(folder) / "input")
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Reading `.npy`")  # numpy's advice on files of Python 2, which it reads
        for number in range(examples):
            read = reader.example(Random(f"{kind.__name__} {seed} {number}"))
            told, before, begun = "", peak(), time.process_time()
            try:
                with limited(MOST_SECONDS):
                    read()
            except AdafedError as error:
                found.refused += 1
                told = f"an empty sentence: {error!r}" if not str(error) else ""
            except TooSlow:
                told = f"more than {MOST_SECONDS:g} seconds"
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                told = f"{error!r}\n" + "".join(traceback.format_tb(error.__traceback__)[-3:])
            seconds, memory = time.process_time() - begun, peak() - before
            if memory > MOST_MEMORY:
                told = told or f"{memory / 1e6:.0f} MB of memory"
            found.examples += 1
            found.seconds += seconds
            found.slowest = max(found.slowest, seconds)
            found.memory = max(found.memory, memory)
            if told:
                found.findings.append(f"{kind.__name__}, seed {seed}, input {number}: {told}")
                if keep is not None and reader.folder.exists():
                    shutil.copytree(reader.folder, keep / f"{kind.__name__}-{seed}-{number}", dirs_exist_ok=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="readers whose name has the word")
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print("| reader | inputs | refused | read | findings | processor seconds | slowest input, ms | most memory, MB |")
    print("|---|---|---|---|---|---|---|---|")
    failed = False
    for kind in READERS:
        if asked.only.lower() not in f"{kind.__name__} {kind.name}".lower():
            continue
        found = fuzzed(kind, asked.examples, asked.seed, asked.keep)
        read = found.examples - found.refused - len(found.findings)
        print(
            f"| {kind.name} | {found.examples} | {found.refused} | {read} "
            f"| {len(found.findings)} | {found.seconds:.0f} | {1000 * found.slowest:.0f} | {found.memory / 1e6:.0f} |",
            flush=True,
        )
        for finding in found.findings:
            print(finding, file=sys.stderr)
        failed = failed or bool(found.findings)
    sys.exit(failed)


if __name__ == "__main__":
    main()
