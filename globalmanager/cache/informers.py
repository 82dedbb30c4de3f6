"""All informers of the engine: one for each type and selector, shared, begun on first need.

Called by loop. What edgeai created is watched by label, so that a cluster's other pods cost
nothing; job resources and what they refer to are watched as a whole.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from common import logs
from common.tasks import TaskGroup
from globalmanager.cache.informer import Informer, InformerSettings
from globalmanager.cache.store import Store
from globalmanager.contract import POD_CONTROLLERS, Object, ResourceType
from globalmanager.kube.client import KubeClient
from globalmanager.kube.objects import Unreadable

log = logs.get_logger(__name__)

MANAGED: Final = "app.kubernetes.io/managed-by=edgeai"
ALL: Final = ""

OnChange = Callable[["Scope", Object | None, Object | None], None]


class Scope(NamedTuple):
    """What one informer covers."""

    type: ResourceType
    label_selector: str


class Informers:
    """
    Args:
        namespace: watched; "" for all
        on_change: (scope, old, new) of every change in any store
        on_settled: called when one more informer has settled
        on_open: told each informer before it runs
        on_set_aside: (type, object) of each that cannot be read
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        settings: InformerSettings,
        on_change: OnChange,
        on_settled: Callable[[], None],
        on_open: Callable[[Informer], None],
        on_set_aside: Callable[[ResourceType, Unreadable], None],
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._settings = settings
        self._on_change = on_change
        self._on_settled = on_settled
        self._on_open = on_open
        self._on_set_aside = on_set_aside
        self._by_scope: dict[Scope, Informer] = {}
        self._tasks: TaskGroup | None = None

    def __iter__(self) -> Iterator[Informer]:
        return iter(tuple(self._by_scope.values()))

    def start(self, tasks: TaskGroup) -> None:
        """Run all that are known, and those to come, in `tasks`."""
        self._tasks = tasks
        for scope, informer in self._by_scope.items():
            self._launch(tasks, scope, informer)

    def get(self, type_: ResourceType, label_selector: str = ALL) -> Informer:
        scope = Scope(type_, label_selector)
        return self._by_scope.get(scope) or self._open(scope)

    def managed(self, type_: ResourceType) -> Store:
        """What edgeai created of a type."""
        return self.get(type_, MANAGED).store

    def all_of(self, type_: ResourceType) -> Store:
        return self.get(type_).store

    def _open(self, scope: Scope) -> Informer:
        store = Store(
            scope.type,
            label=scope.label_selector,
            # Of what links pods to a job only the owner references are read, and there are many.
            metadata_only=scope.type in POD_CONTROLLERS.values(),
        )
        store.subscribe(lambda old, new: self._on_change(scope, old, new))
        informer = Informer(
            self._client,
            store,
            namespace=self._namespace,
            label_selector=scope.label_selector,
            settings=self._settings,
            on_settled=self._on_settled,
            on_set_aside=lambda object_: self._on_set_aside(scope.type, object_),
        )
        self._by_scope[scope] = informer
        self._on_open(informer)
        if self._tasks is not None:
            self._launch(self._tasks, scope, informer)
        return informer

    def _launch(self, tasks: TaskGroup, scope: Scope, informer: Informer) -> None:
        tasks.create_task(informer.run(), name=f"informer {scope.type} {scope.label_selector}")
