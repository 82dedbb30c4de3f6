import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from obstore.exceptions import BaseError

from edgeai.errors import SettingsError
from edgeai.worker import EstimatorError, IncrementalLearning
from edgeai.worker.bucket import Bucket
from edgeai.worker.incremental_learning import LearningEnvironment, from_environ
from tests.support.http_server import serving


class Scripted:
    """Gives `result` as the result of each training and evaluation."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def load(self, model_url: str) -> None: ...

    def save(self, model_url: str) -> None:
        Path(model_url).touch()

    def train(self, train_data: Any, **_options: Any) -> Any:
        return self.result

    def evaluate(self, data: Any, **_options: Any) -> Any:
        return self.result

    def predict(self, batch: Any) -> list[Any]:
        return list(batch)


@pytest.fixture
def environment(tmp_path: Path) -> LearningEnvironment:
    variables = {"MODEL_URL": str(tmp_path / "model"), "MODEL_URLS": "new;deployed"}
    return from_environ(variables)


def test_each_model_is_evaluated(environment: LearningEnvironment) -> None:
    learning = IncrementalLearning(Scripted({"precision": 1}), environment=environment)
    assert learning.evaluate([1.0]) == [{"precision": 1.0}] * 2


@pytest.mark.parametrize(("result", "type_"), [(None, "NoneType"), (0.9, "float")])
def test_an_evaluation_without_metrics_says_what_to_return(
    environment: LearningEnvironment, result: Any, type_: str
) -> None:
    learning = IncrementalLearning(Scripted(result), environment=environment)
    with pytest.raises(EstimatorError) as raised:
        learning.evaluate([1.0])
    assert str(raised.value) == (
        f"Scripted.evaluate gave {type_}; "
        'give a dict with a number for each metric, as {"accuracy": 0.9}'
    )


@pytest.mark.parametrize("result", [None, {}, 0.25, object()])
def test_a_training_needs_no_metrics(environment: LearningEnvironment, result: Any) -> None:
    learning = IncrementalLearning(Scripted(result), environment=environment)
    assert learning.train([1.0]) == {}
    assert Path(environment.model_url, "model").exists()


# ---- buckets ------------------------------------------------------------------------------------


class S3:
    """An S3 server that takes objects from who has the key `AKID`."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def answer(self, request: web.Request) -> web.Response:
        if "AWS4-HMAC-SHA256 Credential=AKID/" not in request.headers.get("Authorization", ""):
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        self.objects[request.path] = await request.read()
        return web.Response(headers={"ETag": '"e"'})


class Saving(Scripted):
    """Saves files below the path; "": the path is a file."""

    def __init__(self, *names: str) -> None:
        super().__init__({"loss": 0.5})
        self.names = names
        self.trained = 0

    def train(self, train_data: Any, **options: Any) -> Any:
        self.trained += 1
        return self.result

    def save(self, model_url: str) -> None:
        for name in self.names:
            path = Path(model_url) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"weights {name}")


async def train(
    estimator: Any, url: str, monkeypatch: Any, key: str = "AKID", end: str = ""
) -> dict[str, bytes]:
    """What a training saves into the bucket. `end`: of each variable."""
    bucket = S3()
    async with serving(bucket.answer) as server:
        variables = {"S3_ENDPOINT_URL": server, "ACCESS_KEY_ID": key, "SECRET_ACCESS_KEY": "s"}
        for name, value in variables.items():
            monkeypatch.setenv(name, value + end)
        environment = from_environ({"MODEL_URL": url})
        learning = IncrementalLearning(estimator, environment=environment, model_name="m.pb")
        await asyncio.to_thread(learning.train, [1.0])
    return bucket.objects


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_model_is_saved_into_a_bucket(slash: str, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = await train(Saving(""), f"s3://b/out/1-0/model{slash}", monkeypatch)
    assert saved == {"/b/out/1-0/model/m.pb": b"weights "}


async def test_a_secret_that_was_made_from_files_has_line_feeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await train(Saving(""), "s3://b/model", monkeypatch, end="\n")


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("MODEL_URL", "s3://b c/model"),
        ("MODEL_URL", "s3://b/model?version=1"),
        ("S3_ENDPOINT_URL", "https://minio example"),
        ("ACCESS_KEY_ID", "AK\nID"),
        ("SECRET_ACCESS_KEY", "hush\nhush"),
    ],
)
def test_a_place_that_cannot_be_is_told_before_the_training(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    estimator = Saving("")
    variables = {"MODEL_URL": "s3://b/model", "ACCESS_KEY_ID": "AKID", "SECRET_ACCESS_KEY": "s"}
    for name, value in {**variables, variable: text}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=variable) as raised:
        IncrementalLearning(estimator).train([1.0])
    assert estimator.trained == 0
    assert "hush" not in str(raised.value)


def test_a_server_without_a_scheme_has_tls_and_a_slow_line_has_minutes() -> None:
    bucket = Bucket("s3://b/model", {"S3_ENDPOINT_URL": "minio.example:9000"})
    assert bucket.store.config["endpoint"] == "https://minio.example:9000"
    # A request with a part of the model: with obstore's 30 s, 12 parts at a time need 16 Mbit/s.
    assert (bucket.store.client_options or {})["timeout"] == "10m"


async def test_all_files_of_a_model_are_saved_into_a_bucket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saved = await train(Saving("a", "x/b"), "s3://b/model", monkeypatch)
    assert saved == {"/b/model/m.pb/a": b"weights a", "/b/model/m.pb/x/b": b"weights x/b"}


async def test_a_bucket_that_refuses_the_keys_fails_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises((BaseError, OSError), match="403"):
        await train(Saving(""), "s3://b/model", monkeypatch, key="other")


def test_without_obstore_nothing_is_trained_for_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    estimator = Saving("")
    environment = from_environ({"MODEL_URL": "s3://b/model"})
    with pytest.raises(SettingsError, match="pip install obstore"):
        IncrementalLearning(estimator, environment=environment).train([1.0])
    assert estimator.trained == 0


def test_without_room_for_the_model_nothing_is_trained_for_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    estimator = Saving("")
    environment = from_environ({"MODEL_URL": "s3://b/model"})
    with pytest.raises(FileNotFoundError, match="missing"):
        IncrementalLearning(estimator, environment=environment).train([1.0])
    assert estimator.trained == 0


def test_no_other_url_is_a_place_for_a_model(environment: LearningEnvironment) -> None:
    other = msgspec.structs.replace(environment, model_url="https://h/model")
    with pytest.raises(SettingsError, match="no s3 URL"):
        IncrementalLearning(Saving(""), environment=other).train([1.0])
