{{- /* The pods that have metrics: all whose component is not a hook's. */ -}}
{{- define "kueue-fallback.scraped" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
kueue-fallback.dev/metrics: "true"
{{- end -}}

{{- define "kueue-fallback.monitorLabels" -}}
{{- with .more }}
{{- toYaml . }}
{{ end -}}
{{- include "kueue-fallback.labels" (dict "root" .root "component" "metrics") -}}
{{- end -}}

{{- define "kueue-fallback.scrapes" -}}
- ports:
    - port: metrics
  {{- with .Values.networkPolicy.scrapesFrom }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
