"""The variables that the GlobalManager gives to the workers of a FederatedLearningJob.

The constructors of FederatedLearning and AggregationServer read the variables. Three variables
exist only in edgeai: JOB_SECRET of the aggregator, PARTICIPANT_SECRET of a trainer, from which the
aggregator knows the trainer's name, and FEDERATION_PARTICIPANTS. No secret appears in a repr or an
error.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from edgeai.addresses import is_loopback
from edgeai.ids import is_subdomain
from edgeai.participants import participant_secret
from edgeai.worker.environment import Address, ReportEnvironment, peer, port, report_settings, wrong


class Secret(msgspec.Struct, frozen=True):
    value: str

    def __repr__(self) -> str:
        return "Secret(***)"


class FederationEnvironment(ReportEnvironment, frozen=True, kw_only=True):
    """Settings of a federation's worker. Empty or None: the variable is not set.

    `worker_name` is the name under which a trainer takes part and reports.
    """

    aggregator: Address | None = None
    """AGG_IP and AGG_PORT: where trainers find the aggregator"""
    bind: Address = Address("0.0.0.0", 7363)
    """AGG_BIND_IP and AGG_BIND_PORT: where the aggregator listens"""
    participants: int = 1
    """PARTICIPANTS_COUNT"""
    secret: Secret = Secret("")
    """JOB_SECRET: the secrets of all participants are derived from it"""
    participant_secret: Secret = Secret("")
    """PARTICIPANT_SECRET: of this trainer; without it, a trainer derives it from JOB_SECRET"""
    participants_file: Path | None = None
    """FEDERATION_PARTICIPANTS: who may take part, see edgeai.worker.federated.participants"""
    model_url: str = ""
    """MODEL_URL: where the result is saved"""
    pretrained_model_url: str = ""
    """PRETRAINED_MODEL_URL: the model that the federation starts from"""
    dataset_url: str = ""
    """TRAIN_DATASET_URL"""
    state_dir: Path = Path("edgeai-federation")
    """FEDERATION_STATE_DIR: where the aggregator keeps its rounds"""


def from_environ(environ: Mapping[str, str]) -> FederationEnvironment:
    """Raises: SettingsError that names the variable, what is wrong and what to do"""
    default = FederationEnvironment()
    path = environ.get("FEDERATION_PARTICIPANTS", "")
    bind_host = environ.get("AGG_BIND_IP") or default.bind.host
    return FederationEnvironment(
        aggregator=peer(environ, "AGG_IP", "AGG_PORT", default.bind.port),
        bind=Address(bind_host, port(environ, "AGG_BIND_PORT", default.bind.port, least=0)),
        participants=participants(environ),
        secret=Secret(environ.get("JOB_SECRET", "")),
        participant_secret=Secret(environ.get("PARTICIPANT_SECRET", "")),
        participants_file=Path(path) if path else None,
        model_url=environ.get("MODEL_URL", ""),
        pretrained_model_url=environ.get("PRETRAINED_MODEL_URL", ""),
        dataset_url=environ.get("TRAIN_DATASET_URL", ""),
        state_dir=Path(environ.get("FEDERATION_STATE_DIR") or default.state_dir),
        **report_settings(environ),
    )


def participants(environ: Mapping[str, str]) -> int:
    text = environ.get("PARTICIPANTS_COUNT", "") or "1"
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise wrong("PARTICIPANTS_COUNT", f"is {text!r}, expected a number of 1 or more")
    return int(text)


def require_participant(environment: FederationEnvironment) -> tuple[Address, str]:
    """Where the aggregator is, and this trainer's name. Raises: SettingsError"""
    if environment.aggregator is None:
        raise wrong("AGG_IP", "is not set; set it to the host of the job's aggregator")
    if not is_subdomain(environment.worker_name):
        problem = f"is {environment.worker_name!r}, expected a name like trainer-0, one for each"
        raise wrong("WORKER_NAME", f"{problem} participant")
    return environment.aggregator, environment.worker_name


def own_secret(environment: FederationEnvironment) -> str:
    """The secret of this trainer; "" without any secret."""
    if environment.participant_secret.value or not environment.secret.value:
        return environment.participant_secret.value
    return participant_secret(environment.secret.value, environment.worker_name)


def require_secret(environment: FederationEnvironment) -> None:
    """Raises: SettingsError if other machines could join the federation without a secret"""
    if not environment.secret.value and not is_loopback(environment.bind.host):
        raise wrong(
            "JOB_SECRET",
            f"is not set, and the aggregator would listen on {environment.bind.host} for anybody; "
            "set it, and for each trainer PARTICIPANT_SECRET or the same JOB_SECRET; or set "
            "AGG_BIND_IP to 127.0.0.1",
        )
