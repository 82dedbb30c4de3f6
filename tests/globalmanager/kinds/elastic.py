"""Samples of elastic training jobs."""

from typing import Any, Final

from globalmanager.contract import Object
from globalmanager.kinds.trainingjob import KIND
from tests.globalmanager.builders import World, from_yaml

JOB: Final = "elastic-training"
LAUNCHER: Final = f"{JOB}-launcher"
IMAGE: Final = "registry.cn-huhehaote.aliyuncs.com/lumo/horovod:master-tf2.1.0-torch1.4.0-mxnet"

# examples/training_job.yaml of the et-operator
EXAMPLE: Final = f"""
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata:
  name: {JOB}
  namespace: default
spec:
  cleanPodPolicy: Running
  etReplicaSpecs:
    launcher:
      replicas: 1
      template:
        spec:
          containers:
          - command:
            - sh
            - -c
            - horovodrun -np 2 --min-np 1 --max-np 9 --host-discovery-script
              /etc/edl/discover_hosts.sh python /examples/elastic/tensorflow2_mnist_elastic.py
            image: {IMAGE}
            imagePullPolicy: Always
            name: mnist-elastic
    worker:
      maxReplicas: 9
      minReplicas: 1
      replicas: 2
      template:
        spec:
          containers:
          - image: {IMAGE}
            imagePullPolicy: Always
            name: mnist-elastic
"""


def worker(index: int) -> str:
    return f"{JOB}-worker-{index}"


def example(
    *,
    worker: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Object:
    """The example with these changes. Args: worker: fields of etReplicaSpecs.worker"""
    job = from_yaml(EXAMPLE)
    job["metadata"]["annotations"] = annotations or {}
    job["spec"] |= spec
    job["spec"]["etReplicaSpecs"]["worker"] |= worker or {}
    return job


def created(job: Object | None = None) -> World:
    """A job whose workers exist."""
    return World(KIND, job or example()).settle()


def launched(job: Object | None = None) -> World:
    """A job whose workers run, and whose launcher exists."""
    return created(job).pods_become("Running").settle()


def running(job: Object | None = None) -> World:
    """A job whose workers and launcher run."""
    return launched(job).pods_become("Running").settle()
