{{- define "poise.labels" -}}
app.kubernetes.io/name: poise
app.kubernetes.io/component: operator
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "poise.selector" -}}
app.kubernetes.io/name: poise
app.kubernetes.io/component: operator
{{- end }}

{{- define "poise.subjects" -}}
- kind: ServiceAccount
  name: poise-operator
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* What has no namespace is told apart by its name: "" for the whole cluster, else ".NAMESPACE". */}}
{{- define "poise.suffix" -}}
{{- with .Values.namespace }}.{{ . }}{{ end }}
{{- end }}

{{/* A role and its binding. Takes: root, kind (Role | ClusterRole), name, namespace (of a Role), rules (YAML). */}}
{{- define "poise.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "poise.labels" .root | nindent 4 }}
rules:
{{ .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "poise.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
{{ include "poise.subjects" .root }}
{{- end }}

{{/* The rules for the resources of one ring, the resources of one group together. */}}
{{- define "poise.ringResources" -}}
{{- $groups := dict }}
{{- range .resources }}
{{- range prepend (.controlled | default list) . }}
{{- $group := .group | default "" }}
{{- $_ := set $groups $group (append (get $groups $group | default list) .resource | uniq) }}
{{- end }}
{{- end }}
{{- range $group, $resources := $groups }}
- apiGroups: [{{ $group | quote }}]
  resources: [{{ join ", " $resources }}]
  verbs: [get, list, watch, patch]
{{- end }}
{{- end }}

{{- define "poise.ringUpkeep" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [list, watch, create, update, delete]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}
