{{- /* The Secret of the authority, and the name of all that belongs to it. */ -}}
{{- define "kueue-fallback.caSecret" -}}
{{- include "kueue-fallback.fullname" . }}-ca
{{- end -}}

{{- /* "true" where cert-manager is to issue from an authority that this chart makes. */ -}}
{{- define "kueue-fallback.ownIssuer" -}}
{{- with .Values.certificates -}}
{{- and (eq .mode "certManager") (not .certManager.issuerRef.name) -}}
{{- end -}}
{{- end -}}

{{- /* What the webhook configuration carries beside the admin's own annotations. */ -}}
{{- define "kueue-fallback.webhookAnnotations" -}}
{{- $annotations := dict -}}
{{- if eq .Values.certificates.mode "certManager" -}}
{{- $certificate := printf "%s/%s" .Release.Namespace (include "kueue-fallback.fullname" .) -}}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from" $certificate -}}
{{- end -}}
{{- with merge (deepCopy .Values.webhook.annotations) $annotations -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}
