"""A Kubernetes-compatible cluster in one Python process, for a laptop and for tests.

An HTTP API on loopback over one SQLite file, the controllers that a Deployment needs, a kubelet
that runs containers as local processes, a proxy for Services. `kubectl` and ordinary clients work
with it. The cluster is a convenience: a real API server is the judge of what Kubernetes does, and
one suite of tests runs against both (tests/conformance).

Rooms: `objects` (what is stored, and its rules), `api` (HTTP), `controllers`, `network`
(addresses, Services), `kubelet` (pods as processes).

What differs from Kubernetes, on purpose:

- Server-side apply merges. There are no field owners: no managedFields, no 409 on a field of
  another manager, and a field that a later apply leaves out stays.
- Objects of built-in kinds are checked only where the controllers, the kubelet and the clients
  here depend on a field. Unknown fields of built-in kinds are kept, even with `--validate=strict`,
  and `kubectl explain` knows only the top fields. Custom resources are pruned, defaulted and
  validated by their whole schema; CEL rules (x-kubernetes-validations) are not evaluated.
- The versions of a CRD differ by name only (conversion strategy None), and the storage version must
  be served. A CRD whose names are taken is refused (422); Kubernetes accepts such a CRD and
  tells the conflict in its status. When a CRD becomes stricter, an object that breaks the new rule
  may keep that fault until the faulty field changes.
- One token, which may do everything: no RBAC, no admission webhooks, no quotas. Role objects,
  NetworkPolicies, Ingresses, PodDisruptionBudgets, autoscalers, ReplicaSets and the like are stored
  and have no effect: a Deployment owns its pods directly, and the GlobalManager watches ReplicaSets
  in vain. DaemonSets, StatefulSets, Jobs and CronJobs are not served.
- A rolling update of a Deployment replaces one pod after the other: a new one is ready before an
  old one goes. maxSurge, maxUnavailable and minReadySeconds are kept and not read.
- A namespace begins empty: no default ServiceAccount, no kube-root-ca.crt. An update never creates
  an object, not even a Lease. A write of a pod's status does not change the pod's metadata.
- A volume that cannot be mounted is named in the waiting state of the containers
  (CreateContainerConfigError); in Kubernetes only Events name it.
- `kubectl get --raw` is refused with 401. The token is part of the server's path, and kubectl
  leaves that path out of raw requests.
- No exec, attach, port-forward, cp or top; no TLS; no service account tokens; no events.k8s.io.
- Protobuf bodies are refused (415). `kubectl create configmap`, `create secret` and the like send
  protobuf; with `--dry-run=client -o yaml` they print what `kubectl apply -f -` takes.
- A watch from a resource version that this cluster has not reached is told to list again (410):
  that version is of another cluster.
- Each page of a list shows its objects as they are when the page is read. A watch from the list's
  resource version delivers every change since the first page.
- Writes survive a crash of the process; a power cut may lose the last ones.
"""
