{{- /*
The metadata of a hook's object. Rights of hooks exist only while the hook runs: they come before its
Job (weight) and go when all is done, or with the first failure.
*/ -}}
{{- define "kueue-fallback.hook" -}}
name: {{ include "kueue-fallback.fullname" .root }}-{{ .component }}
{{- $namespace := hasKey . "namespace" | ternary (get . "namespace") .root.Release.Namespace }}
{{- with $namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "kueue-fallback.labels" . | nindent 2 }}
annotations:
  helm.sh/hook: {{ .events }}
  helm.sh/hook-weight: {{ .weight | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
  helm.sh/hook-output-log-policy: hook-succeeded,hook-failed
{{- end -}}

{{- /* The Job of a hook: one pod that is tried once and ends by itself. */ -}}
{{- define "kueue-fallback.hookJob" }}
spec:
  backoffLimit: 0
  # One that failed stays to be looked at, and then goes by itself.
  ttlSecondsAfterFinished: 3600
  activeDeadlineSeconds: {{ .deadline }}
  template:
    metadata:
      labels:
        {{- include "kueue-fallback.podLabels" . | trim | nindent 8 }}
      {{- with .root.Values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "kueue-fallback.fullname" .root }}-{{ .component }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      restartPolicy: Never
      securityContext:
        {{- include "kueue-fallback.podSecurity" .root | nindent 8 }}
      {{- include "kueue-fallback.podPlacement" .root | trim | nindent 6 }}
      containers:
        - name: {{ .component }}
          image: {{ include "kueue-fallback.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args:
            {{- range .arguments }}
            - {{ . | quote }}
            {{- end }}
          resources:
            {{- toYaml .root.Values.hooks.resources | nindent 12 }}
          securityContext:
            {{- include "kueue-fallback.containerSecurity" .root | nindent 12 }}
          volumeMounts:
            - name: tmp
              mountPath: /tmp
      volumes:
        {{- include "kueue-fallback.tmp" .root | nindent 8 }}
{{- end -}}
