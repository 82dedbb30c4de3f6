"""The pod labels that both the GlobalManager and the LocalController read.

The GlobalManager writes these labels on every object that it creates. The LocalController uses them
to find pods. A label alone proves nothing: a pod's controller must belong to the job.
"""

from typing import Final

LABEL_UID: Final = "edgeai.io/uid"  # the value is metadata.uid of the job
LABEL_WORKER: Final = "edgeai.io/worker"  # the value is the name of the worker that runs in the pod
