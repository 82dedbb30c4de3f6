"""A Kubernetes-compatible cluster in one Python process, for a laptop and for tests.

An HTTP API on loopback over one SQLite file, the controllers that a Deployment needs, a kubelet
that runs containers as local processes, a proxy for Services. `kubectl` and ordinary clients work
with it; it is a convenience and never the judge of what Kubernetes does. What it promises is
asserted of it and of a real API server alike (tests/conformance).

What the API does not do, on purpose:

- Server-side apply merges; nobody owns fields (no managedFields, no 409 on another's field), and
  what a later apply leaves out stays.
- Objects of built-in kinds are checked only where the controllers, the kubelet and the clients
  here depend on it: their unknown fields are kept, even with `--validate=strict`, and `kubectl
  explain` knows only their top. Custom resources are pruned, defaulted and validated by their
  schema in full, but CEL rules (x-kubernetes-validations) are not evaluated.
- CRD versions differ in nothing but their name (conversion strategy None), and the storage
  version must be served. A CRD whose names are taken is refused (422), where Kubernetes accepts it
  and says so in its status. What was wrong with an object before its CRD became stricter may stay
  wrong until it is changed.
- One token, which may do everything: no RBAC, no admission webhooks, no quotas. Role objects,
  NetworkPolicies, Ingresses, PodDisruptionBudgets, autoscalers, ReplicaSets and the like are stored
  and have no effect: a Deployment owns its pods directly, and the GlobalManager watches ReplicaSets
  in vain. DaemonSets, StatefulSets, Jobs and CronJobs are not served.
- A rolling update of a Deployment replaces one pod after the other: a new one is ready before an
  old one goes. maxSurge, maxUnavailable and minReadySeconds are kept and not read.
- A namespace begins empty: no default ServiceAccount, no kube-root-ca.crt. No object is created by
  an update, a Lease neither. The status of a pod is written without its metadata.
- A volume that cannot be mounted is named in the waiting state of the containers
  (CreateContainerConfigError), where Kubernetes leaves it to Events.
- `kubectl get --raw` does not get in: kubectl shows the token, which is in the server's path, with
  everything but raw requests.
- No exec, attach, port-forward, cp or top; no TLS; no service account tokens; no events.k8s.io.
- Protobuf bodies are refused (415). `kubectl create configmap`, `create secret` and the like send
  protobuf; with `--dry-run=client -o yaml` they print what `kubectl apply -f -` takes.
- A watch from a version that has not come yet is of another cluster: it is told to list again.
- The pages of one list show objects as they are when the page is read; watching from the list's
  resource version brings a reader to the present.
- Writes survive a crash of the process; the last ones may be lost in a power cut.
"""
