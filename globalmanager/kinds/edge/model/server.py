"""The Service of the cluster that has the content of a Model, which nodes reach through the relay.

The host of an http or https URL names it, or that of the S3 server in the annotations of the Secret
with the keys. Only Services of the Model's own namespace count: a namespace is a tenant.
"""

from collections.abc import Mapping

from common.service_urls import service_address
from edgeai.api.model import ModelSpec
from edgeai.api.resources import SECRETS, SERVICES, Object, ObjectRef
from edgeai.api.rollouts import ModelVersion
from globalmanager.contract import Job, Observed, ServicePort
from globalmanager.kinds.edge.references import secret_ref, server_of


def references(job: Job) -> frozenset[ObjectRef]:
    if not isinstance(job.spec, ModelSpec):
        return frozenset()
    namespace, name = job.ref.namespace, job.spec.credential_name
    secret = {secret_ref(namespace, name)} if _is_in_bucket(job.spec) and name else ()
    return frozenset({*secret, *_services(namespace, job.spec.url)})


def services(references: Mapping[ObjectRef, Object]) -> frozenset[ObjectRef]:
    return frozenset(
        service
        for ref, secret in references.items()
        if ref.type == SECRETS
        for service in _services(ref.namespace, server_of(secret))
    )


def targets(observed: Observed, content: ModelVersion | None) -> tuple[ServicePort, ...]:
    """What the nodes may reach through the relay.

    Args: content: that a node gets, also after a wrong edit of the Model; None: that of the spec
    """
    source: ModelVersion | ModelSpec | None = content or observed.spec
    if source is None:
        return ()
    namespace = observed.ref.namespace
    secret = observed.references.get(secret_ref(namespace, source.credential_name))
    server = server_of(secret) if _is_in_bucket(source) else source.url
    address = service_address(server, namespace)
    return (ServicePort(*address, is_child=False),) if address else ()


def _is_in_bucket(source: ModelVersion | ModelSpec) -> bool:
    return source.url.startswith("s3://")


def _services(namespace: str, url: str) -> tuple[ObjectRef, ...]:
    address = service_address(url, namespace)
    return (ObjectRef(SERVICES, namespace, address.service),) if address else ()
