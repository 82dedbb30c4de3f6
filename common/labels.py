"""The labels of pods that cloud and edge both read.

The GlobalManager writes them on every object it creates; the LocalController selects the pods of
its node by them. A label alone binds nothing: a pod counts only with a controller chain to the job.
"""

from typing import Final

LABEL_UID: Final = "edgeai.io/uid"  # metadata.uid of the job
LABEL_WORKER: Final = "edgeai.io/worker"  # the worker that runs in the pod
