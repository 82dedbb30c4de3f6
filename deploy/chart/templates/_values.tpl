{{/* The image of a role. Takes a dict: Root is the root context, Role the name. */}}
{{- define "edgeai.image" -}}
{{- $values := .Root.Values -}}
{{- $name := printf "%s/%s" $values.registry .Role -}}
{{- with get $values.digests .Role -}}
{{ $name }}@{{ . }}
{{- else -}}
{{ $name }}:{{ $values.tag | default .Root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Where edge nodes reach the GlobalManager. Its host must be a name of the certificate. */}}
{{- define "edgeai.edgeURL" -}}
{{- $host := .Values.edgeHost | default (printf "globalmanager.%s.svc" .Release.Namespace) -}}
{{- if contains ":" $host }}{{ $host = printf "[%s]" $host }}{{ end -}}
wss://{{ $host }}:{{ .Values.nodePort | default 9000 | int }}
{{- end -}}

{{/* A ClusterRole that the GlobalManager has. Takes a dict: Root, Name, Rules (a file). */}}
{{- define "edgeai.clusterRole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .Name }}
rules:
{{ .Root.Files.Get .Rules | trim }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .Name }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .Name }}
subjects:
- kind: ServiceAccount
  name: globalmanager
  namespace: {{ .Root.Release.Namespace }}
{{- end -}}
