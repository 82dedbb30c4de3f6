"""How the result is saved, and what is said before the first round where it could not be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeai.errors import SettingsError
from edgeai.worker.environment import Address
from edgeai.worker.federated.environment import FederationEnvironment
from edgeai.worker.federated.estimator import save_model
from edgeai.worker.federated.server import AggregationServer
from tests.edgeai.worker.federated.mean import Mean
from tests.edgeai.worker.peers import LOOPBACK

IN_A_BUCKET = "s3://models/digits"
ONE = np.ones(2, dtype=np.float32)


@pytest.mark.parametrize("name", ["file", "allow_pickle", "args", "layer/0.weight", "größe"])
def test_a_tensor_may_have_any_name(tmp_path: Path, name: str) -> None:
    save_model({name: ONE, "other": ONE * 2}, None, str(tmp_path / "new" / "model.npz"))
    with np.load(tmp_path / "new" / "model.npz") as saved:
        assert {key: saved[key].tolist() for key in saved} == {name: [1, 1], "other": [2, 2]}


def test_a_sequence_of_weights_is_numbered(tmp_path: Path) -> None:
    save_model([ONE, ONE * 2], None, str(tmp_path / "model.npz"))
    with np.load(tmp_path / "model.npz") as saved:
        assert list(saved) == ["weight_0", "weight_1"]


def server(tmp_path: Path, estimator: Any) -> AggregationServer:
    environment = FederationEnvironment(
        bind=Address(LOOPBACK, 0), state_dir=tmp_path / "state", model_url=IN_A_BUCKET
    )
    return AggregationServer(environment=environment, estimator=estimator)


def test_a_model_in_a_bucket_wants_an_estimator_before_anything_is_learned(tmp_path: Path) -> None:
    says = "MODEL_URL: begins with s3://, .* no estimator .*; give it one, or name a Model"
    with pytest.raises(SettingsError, match=says):
        server(tmp_path, None)
    assert not (tmp_path / "state").exists()


def test_an_estimator_saves_where_it_can(tmp_path: Path) -> None:
    estimator = Mean()
    with server(tmp_path, estimator)._server:
        save_model({"mean": ONE}, estimator, IN_A_BUCKET)
    assert estimator.saved == [IN_A_BUCKET]


def test_nothing_is_saved_on_this_node_for_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="MODEL_URL"):
        save_model({"mean": ONE}, None, IN_A_BUCKET)
    assert list(tmp_path.iterdir()) == []
