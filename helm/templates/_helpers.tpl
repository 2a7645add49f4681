{{- define "kueue-fallback.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Chart.Name .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kueue-fallback.controller" -}}
{{- include "kueue-fallback.fullname" . }}-controller
{{- end -}}

{{- define "kueue-fallback.selectorLabels" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "kueue-fallback.labels" -}}
{{ include "kueue-fallback.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | quote }}
{{- end -}}

{{- define "kueue-fallback.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "kueue-fallback.tlsSecret" -}}
{{- .Values.tls.secretName | default (printf "%s-tls" (include "kueue-fallback.fullname" .)) -}}
{{- end -}}

{{- /* What the state is made of: read by the webhook and by the controller alike. */ -}}
{{- define "kueue-fallback.readRules" -}}
- apiGroups: [kueue.x-k8s.io]
  resources:
    - admissionchecks
    - clusterqueues
    - cohorts
    - localqueues
    - resourceflavors
    - workloadpriorityclasses
    - workloads
  verbs: [list, watch]
- apiGroups: [kueue-fallback.dev]
  resources: [fallbackpolicies]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [limitranges, namespaces]
  verbs: [list, watch]
- apiGroups: [node.k8s.io]
  resources: [runtimeclasses]
  verbs: [list, watch]
# Only the names are used: they tell whether Kueue's webhook runs after this one.
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations]
  verbs: [list, watch]
{{- end -}}

{{- define "kueue-fallback.readers" -}}
- kind: ServiceAccount
  name: {{ include "kueue-fallback.fullname" . }}
  namespace: {{ .Release.Namespace }}
{{- if .Values.controller.enabled }}
- kind: ServiceAccount
  name: {{ include "kueue-fallback.controller" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
{{- end -}}

{{- define "kueue-fallback.podSecurity" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "kueue-fallback.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- /* Where pods may run and how their image is pulled: the same for both Deployments. */ -}}
{{- define "kueue-fallback.podPlacement" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "kueue-fallback.namespaceSelector" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
      {{- concat .Values.webhook.excludedNamespaces (list .Values.kueue.namespace .Release.Namespace) | uniq | toYaml | nindent 6 }}
{{- end -}}
