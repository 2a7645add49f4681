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

{{- define "kueue-fallback.podLabels" -}}
{{- range $name, $value := .root.Values.podLabels }}
{{- if regexMatch "^(app[.]kubernetes[.]io|helm[.]sh|kueue-fallback[.]dev)/" $name }}
{{- fail (printf "podLabels cannot set %s: pods are found by it" $name) }}
{{- end }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{ include "kueue-fallback.labels" . }}
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

{{- /* The Secret with the certificate authority. */ -}}
{{- define "kueue-fallback.caSecret" -}}
{{- include "kueue-fallback.fullname" . }}-ca
{{- end -}}

{{- /* Whether cert-manager signs with an authority of this release's own. */ -}}
{{- define "kueue-fallback.ownIssuer" -}}
{{- and (eq .Values.certificates.mode "certManager") (not .Values.certificates.certManager.issuerRef.name) -}}
{{- end -}}

{{- /* The Secret that is mounted; nothing where the servers manage their certificates. */ -}}
{{- define "kueue-fallback.tlsSecret" -}}
{{- $named := eq .Values.certificates.mode "files" | ternary .Values.certificates.files.secretName "" -}}
{{- if ne .Values.certificates.mode "selfManaged" -}}
{{- $named | default (printf "%s-tls" (include "kueue-fallback.fullname" .)) -}}
{{- end -}}
{{- end -}}

{{- /* The path that the API servers call: the first of the secret segments behind /mutate. */ -}}
{{- define "kueue-fallback.path" -}}
{{- $segment := first (concat .Values.webhook.pathSegments (list "")) -}}
/mutate{{ with $segment }}/{{ . }}{{ end }}
{{- end -}}

{{- /* How the API servers reach the webhook at a path. */ -}}
{{- define "kueue-fallback.clientConfig" -}}
service:
  name: {{ include "kueue-fallback.fullname" .root }}
  namespace: {{ .root.Release.Namespace }}
  path: {{ .path }}
  port: {{ .root.Values.service.port }}
{{- if eq .root.Values.certificates.mode "files" }}
{{- with .root.Values.certificates.files.caBundle }}
caBundle: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The volume with the authority of the API servers' client certificates; nothing without one. */ -}}
{{- define "kueue-fallback.clientCA" -}}
{{- with .Values.webhook.clientCA -}}
{{- if and .pem .from.name -}}
{{- fail "webhook.clientCA: give pem or from.name, not both" -}}
{{- else if and .names (not (or .pem .from.name)) -}}
{{- fail "webhook.clientCA.names: need an authority that vouches for them, in pem or from.name" -}}
{{- else if and .from.name (eq .from.kind "Secret") -}}
secret:
  secretName: {{ .from.name }}
  items: [{key: {{ .from.key }}, path: ca.crt}]
{{- else if or .pem .from.name -}}
configMap:
  name: {{ .from.name | default (printf "%s-client-ca" (include "kueue-fallback.fullname" $)) }}
  items: [{key: {{ ternary "ca.crt" .from.key (ne .pem "") }}, path: ca.crt}]
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Whether there are ValidatingAdmissionPolicies: in v1 from Kubernetes 1.30 on. */ -}}
{{- define "kueue-fallback.admissionPolicies" -}}
{{- and .Values.admissionPolicies.create (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) -}}
{{- end -}}

{{- /* Whether there is one of the webhook's configuration: with cert-manager or files it may not write that. */ -}}
{{- define "kueue-fallback.onlyCaBundle" -}}
{{- and (eq (include "kueue-fallback.admissionPolicies" .) "true") (eq .Values.certificates.mode "selfManaged") -}}
{{- end -}}

{{- /* Whether there is one of Secrets: the controller makes the signing keys, in selfManaged mode the webhook its authority. */ -}}
{{- define "kueue-fallback.ownSecrets" -}}
{{- and (eq (include "kueue-fallback.admissionPolicies" .) "true") (or .Values.controller.enabled (eq .Values.certificates.mode "selfManaged")) -}}
{{- end -}}

{{- /* Who a component is to the API server; the webhook's account has no suffix. */ -}}
{{- define "kueue-fallback.username" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "kueue-fallback.fullname" . }}
{{- end -}}

{{- /* Whether there are NetworkPolicies. */ -}}
{{- define "kueue-fallback.networkPolicy" -}}
{{- with .Values.networkPolicy -}}
{{- kindIs "invalid" .enabled | ternary (not (empty .reviewsFrom)) .enabled -}}
{{- end -}}
{{- end -}}

{{- /* To where the pods of one component may call, where that is limited. */ -}}
{{- define "kueue-fallback.egress" -}}
{{- with .Values.networkPolicy.callsTo -}}
egress:
  - to:
      {{- toYaml . | nindent 6 }}
  # DNS, wherever it is: CoreDNS, a cache on the node, OpenShift's port.
  - ports:
      {{- range list 53 5353 }}
      - port: {{ . }}
        protocol: UDP
      - port: {{ . }}
        protocol: TCP
      {{- end }}
{{- end -}}
{{- end -}}

{{- /* What the webhook and the controller both read; Workloads are the webhook's alone. */ -}}
{{- define "kueue-fallback.readRules" -}}
# Reads quotas, their usage, and which Workloads Kueue would admit next.
- apiGroups: [kueue.x-k8s.io]
  resources:
    - admissionchecks
    - clusterqueues
    - cohorts
    - localqueues
    - multikueueclusters
    - multikueueconfigs
    - resourceflavors
    - topologies
    - workloadpriorityclasses
    - workloads
  verbs: [list, watch]
# Reads which Jobs may run where, and what that costs.
- apiGroups: [kueue-fallback.dev]
  resources: [fallbackpolicies, acceleratorprofiles, tariffs]
  verbs: [list, watch]
{{- if .Values.teamPolicies.enabled }}
# Reads what teams decide for Jobs of their own namespaces.
- apiGroups: [kueue-fallback.dev]
  resources: [teamfallbackpolicies]
  verbs: [list, watch]
{{- end }}
# Reads the labels that policies select by, and the default requests of pods.
- apiGroups: [""]
  resources: [limitranges, namespaces]
  verbs: [list, watch]
{{- if .Values.accelerators.watchNodes }}
# Reads the devices of Nodes from their labels, and the room of a topology from their capacity.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch]
{{- end }}
# Reads what a pod requests in addition to its containers.
- apiGroups: [node.k8s.io]
  resources: [runtimeclasses]
  verbs: [list, watch]
# Reads which devices an extended resource counts.
- apiGroups: [resource.k8s.io]
  resources: [deviceclasses]
  verbs: [list, watch]
# Reads priorities, because Kueue admits Jobs in their order.
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [list, watch]
# Uses only the names, which show whether Kueue's webhook runs after this one.
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations]
  verbs: [list, watch]
{{- end -}}

{{- define "kueue-fallback.runTimes" -}}
{{- range $shard := until 32 }}
- kueue-fallback-run-times-{{ $shard }}
{{- end }}
{{- end -}}

{{- define "kueue-fallback.journal" -}}
{{- range $shard := until 192 }}
- kueue-fallback-journal-{{ $shard }}
{{- end }}
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
{{- if not (kindIs "invalid" .Values.runAsUser) }}
runAsUser: {{ .Values.runAsUser }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- /* Labels and annotations of the pods of one component. */ -}}
{{- define "kueue-fallback.podMetadata" -}}
labels:
  {{- include "kueue-fallback.podLabels" . | trim | nindent 2 }}
  kueue-fallback.dev/metrics: "true"
annotations:
  # Settings are read once at start, so a change of them must start new pods.
  {{- if eq .component "webhook" }}
  {{- with .root.Values.webhook.pathSegments }}
  checksum/path: {{ toJson . | sha256sum }}
  {{- end }}
  {{- end }}
  checksum/settings: {{ include (print .root.Template.BasePath "/settings-configmap.yaml") .root | sha256sum }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "kueue-fallback.probes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet:
    path: /readyz
    port: metrics
  periodSeconds: {{ .readyEverySeconds }}
{{- end -}}

{{- /* The one place to write to; in memory, so that no disk ever delays an answer. */ -}}
{{- define "kueue-fallback.tmp" -}}
- name: tmp
  emptyDir:
    medium: Memory
    sizeLimit: 16Mi
{{- end -}}

{{- /* Pods of one component: over nodes, then zones; a new version is spread for itself, not around the old one's pods. */ -}}
{{- define "kueue-fallback.spread" -}}
{{- $default := list -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" -}}
{{- $default = append $default (dict "topologyKey" . "maxSkew" 1 "whenUnsatisfiable" "ScheduleAnyway" "matchLabelKeys" (list "pod-template-hash")) -}}
{{- end -}}
{{- $own := include "kueue-fallback.selectorLabels" . | fromYaml -}}
{{- range .root.Values.topologySpreadConstraints | default $default }}
{{- $constraint := merge (dict) . (dict "labelSelector" (dict "matchLabels" $own)) }}
- {{ toYaml $constraint | indent 2 | trim }}
{{- end }}
{{- end -}}

{{- /* glibc gives back what large objects took: one heap, and large blocks mapped on their own. */}}
{{- define "kueue-fallback.allocator" -}}
env:
  - name: MALLOC_ARENA_MAX
    value: "1"
  - name: MALLOC_MMAP_THRESHOLD_
    value: "32768"
  - name: MALLOC_TRIM_THRESHOLD_
    value: "131072"
{{- end }}

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

{{- define "kueue-fallback.webhookAnnotations" -}}
{{- $own := dict -}}
{{- if eq .Values.certificates.mode "certManager" -}}
{{- $own = dict "cert-manager.io/inject-ca-from" (printf "%s/%s" .Release.Namespace (include "kueue-fallback.fullname" .)) -}}
{{- end -}}
{{- with merge $own .Values.webhook.annotations -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- define "kueue-fallback.excludedNamespaces" -}}
{{- concat .Values.webhook.excludedNamespaces (list .Values.kueue.namespace .Release.Namespace) | uniq | toJson -}}
{{- end -}}

{{- define "kueue-fallback.namespaceSelector" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values:
      {{- include "kueue-fallback.excludedNamespaces" . | fromJsonArray | toYaml | nindent 6 }}
{{- with .Values.webhook.namespaceLabels }}
matchLabels:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The ConfigMaps with series that Tariffs may name, by namespace. */}}
{{- define "kueue-fallback.series" -}}
{{- $found := dict }}
{{- range .Values.tariffs.series }}
  {{- $parts := splitList "/" . }}
  {{- $namespace := ternary (first $parts) $.Release.Namespace (gt (len $parts) 1) }}
  {{- $_ := set $found $namespace (append (default list (get $found $namespace)) (last $parts)) }}
{{- end }}
{{- toYaml $found }}
{{- end }}
