"""What knows the cluster from its caches, and writes nothing."""

from typing import NamedTuple

from globalmanager.contract import WorkerSettings
from globalmanager.engine.caches import Caches
from globalmanager.engine.jobs import Jobs
from globalmanager.engine.observe import Observer
from globalmanager.ha.contacts import Contacts


class Readers(NamedTuple):
    """The parts of the engine that read."""

    caches: Caches
    jobs: Jobs
    observer: Observer


def build_readers(caches: Caches, contacts: Contacts, settings: WorkerSettings) -> Readers:
    jobs = Jobs(caches.kinds, caches)
    observer = Observer(jobs, caches, contacts=contacts, settings=settings)
    return Readers(caches, jobs, observer)
