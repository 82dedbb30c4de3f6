"""A Kubernetes-compatible cluster in one Python process, for a laptop and for tests.

The cluster has an HTTP API on loopback over one SQLite file, the controllers that a Deployment
needs, a kubelet that runs containers as local processes, and a proxy for Services. `kubectl` and
ordinary clients work with the cluster. A real API server defines what Kubernetes does, so one suite
of tests runs against both (tests/conformance).

Rooms: `objects` (rules), `api` (HTTP), `controllers`, `network`, `kubelet` (pods as processes).

The cluster differs from Kubernetes on purpose:

- Server-side apply merges. There are no field owners: no managedFields, no 409 on a field of
  another manager, and a field that a later apply leaves out stays.
- Objects of built-in kinds are checked only where the controllers, the kubelet and the clients
  here depend on a field. Unknown fields of built-in kinds are kept, even with `--validate=strict`,
  and `kubectl explain` knows only their metadata. Custom resources are pruned, defaulted and
  validated by their schema, in the keywords that edgeai's own definitions use; other keywords and
  CEL rules (x-kubernetes-validations) are not evaluated.
- The versions of a CRD differ by name only (conversion strategy None), and the API must serve the
  storage version. The API does not check whether a CRD's schema is structural, nor whether another
  CRD uses the same names. When a CRD becomes stricter, an object that breaks the new rule may keep
  this fault until the faulty field changes.
- The cluster has one token, which allows everything. It has no RBAC and no admission webhooks. Of a
  ResourceQuota only `pods` counts. Role objects, NetworkPolicies, Ingresses, PodDisruptionBudgets,
  autoscalers, ReplicaSets and the like are stored and have no effect. A Deployment owns its pods
  directly, so the GlobalManager's watch on ReplicaSets never gets an event. The API does not serve
  DaemonSets, StatefulSets, Jobs and CronJobs.
- A rolling update of a Deployment replaces one pod after the other: a new pod is ready before an
  old pod is deleted. The controllers ignore maxSurge, maxUnavailable, minReadySeconds and
  progressDeadlineSeconds. A Deployment has no condition Progressing.
- A new namespace is empty: no default ServiceAccount, no kube-root-ca.crt. An update never creates
  an object, not even a Lease. A write of a pod's status does not change the pod's metadata.
- The waiting state of the containers names a volume that cannot be mounted
  (CreateContainerConfigError). In Kubernetes only Events name this volume.
- The API refuses `kubectl get --raw` with 401. The token is part of the server's path, and kubectl
  leaves this path out of raw requests.
- Images mean nothing: the machine has the programs. Only an image whose registry ends with
  `.invalid`, a name that never exists, cannot be pulled (ErrImagePull, ImagePullBackOff).
- There is no DNS. Host names of Services in the command, args and env of a container become
  addresses when the container starts, so the Service must exist by then. A name in a file or in the
  program stays as it is. A headless Service has one address from its creation to its deletion. Its
  pod has this address, and so has a pod that replaces it. Of several pods, the name leads to one.
- All pods share the network of the machine. Each pod has an address of its own, so programs that
  listen on the address of their pod (status.podIP) may use the same port. A program that listens on
  every address (0.0.0.0, [::]) needs a port that no other program of the machine uses.
- An isolated node (`--isolated-nodes`) has a network of its own instead: its pods reach each
  other and, outside the node, only `--openings`. The names of other Services mean nothing there,
  and probes over the network do not reach its containers. Logs and commands do.
- TensorFlow and PyTorch listen on every address. So a port of a headless Service becomes a free
  port of the machine (20000 to 29999) in TF_CONFIG, PET_RDZV_ENDPOINT, MASTER_PORT (beside
  MASTER_ADDR) and PET_MASTER_PORT (beside PET_MASTER_ADDR), the same in all pods until the Service
  is deleted. In a pod with such a variable, all HOST:PORT of all containers follow, and the probes.
  Service, Endpoints and containerPort keep the number. A pod without such a variable, or a program
  with a port number of its own, does not find the port. PET_RDZV_CONF gets `is_host`, because
  torchrun takes every loopback address for its own.
- No attach, port-forward, cp or top; no TLS, also in probes; no gRPC probes, no startup
  probes; no events.k8s.io; no logs since a time; no deletion of a collection in one request.
- The API refuses bodies of YAML and of protobuf (415). `kubectl create configmap`, `create secret`
  and the like send protobuf. With `--dry-run=client -o yaml` these commands print a manifest that
  `kubectl apply -f -` takes.
- A watch from a resource version that this cluster has not reached must list again (410), because
  another cluster has created this version.
- Each page of a list shows its objects as they are when the page is read. A watch from the list's
  resource version delivers every change since the first page.
- Writes survive a crash of the process; a power cut may lose the last writes.
"""
