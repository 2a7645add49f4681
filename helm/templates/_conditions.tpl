{{- /*
What the API server can tell by itself, so that it need not call. Each condition says what a Job must
be to be sent, and holds for exactly those that webhook/decide/match.py would not skip and that bring
a Workload: whatever takes a place in a queue is sent, and counted there, even if no policy matches.
The last one spares the second call after Kueue's webhook has suspended the Job (IfNeeded): the
decision notes the newest time in managedFields and the Job's name. Both stay the same throughout one
admission; a later submission moves the time on, and a copy within the same second has another name.
*/ -}}

{{- define "kueue-fallback.conditionsCREATE" -}}
{{- if has "Pod" .Values.kinds }}
- name: not-a-pod-of-another-object-or-of-a-node
  expression: >-
    request.kind.kind != 'Pod' || ((!has(object.metadata.annotations)
    || (!('kueue.x-k8s.io/pod-suspending-parent' in object.metadata.annotations)
    && !('kubernetes.io/config.mirror' in object.metadata.annotations)))
    && (!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(owner,
    has(owner.controller) && owner.controller && owner.kind in ['DaemonSet', 'Job', 'Node'])))
{{- end }}
- name: not-owned-by-what-kueue-manages
  expression: >-
    !has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(owner,
    has(owner.controller) && owner.controller && (owner.apiVersion.split('/')[0] + '/' + owner.kind) in [
    {{ range $kind, $known := .Files.Get "files/kinds.yaml" | fromYaml }}
    {{- if $known.owner }}'{{ $known.group }}/{{ $kind }}', {{ end }}
    {{- end }}'ray.io/RayService'])
- name: not-a-copy-from-a-manager-cluster
  expression: >-
    !has(object.metadata.labels) || !('kueue.x-k8s.io/multikueue-origin' in object.metadata.labels)
- name: not-with-a-workload-made-before
  expression: >-
    (!has(object.metadata.labels) || !('kueue.x-k8s.io/prebuilt-workload-name' in object.metadata.labels))
    && (!has(object.metadata.annotations) ||
    !('kueue.x-k8s.io/prebuilt-workload-name' in object.metadata.annotations))
{{- with .Values.webhook.matchConditions }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "kueue-fallback.conditionsUPDATE" -}}
- name: with-the-decision-that-it-had-undone-or-to-be-moved
  expression: >-
    (has(oldObject.metadata.annotations) && has(object.metadata.annotations)
    && 'kueue-fallback.dev/decision' in oldObject.metadata.annotations
    && 'kueue-fallback.dev/decision' in object.metadata.annotations
    && object.metadata.annotations['kueue-fallback.dev/decision']
    == oldObject.metadata.annotations['kueue-fallback.dev/decision'])
    || {{ include "kueue-fallback.rolled" . | nindent 4 | trim }}
    || {{ include "kueue-fallback.undone" . | nindent 4 | trim }}
    || {{ include "kueue-fallback.toBeMoved" . | nindent 4 | trim }}
- name: not-opted-out-undone-or-to-be-moved
  expression: >-
    !has(object.metadata.annotations) || !('kueue-fallback.dev/policy' in object.metadata.annotations)
    || object.metadata.annotations['kueue-fallback.dev/policy'] != 'none'
    || {{ include "kueue-fallback.undone" . | nindent 4 | trim }}
    || {{ include "kueue-fallback.toBeMoved" . | nindent 4 | trim }}
{{- end -}}

{{- /*
An undone Job that goes on reading variables from annotations: its manifest has them as values, and
both together would be refused.
*/ -}}

{{- define "kueue-fallback.undone" -}}
(has(object.metadata.labels) && 'kueue-fallback.dev/option' in object.metadata.labels
&& object.metadata.labels['kueue-fallback.dev/option'] == 'none')
{{- end -}}

{{- /*
A moved Deployment: Kueue's webhook writes the queue of its own label over that of its pods in each
update, which the second call (IfNeeded) takes back.
*/ -}}

{{- define "kueue-fallback.rolled" -}}
(has(object.metadata.annotations) && 'kueue-fallback.dev/pods-queue' in object.metadata.annotations)
{{- end -}}

{{- /*
A wish for a move is answered in each case, even if only to take it off and say why. Once the webhook
has answered it is gone, so that the second call after Kueue's webhook (IfNeeded) is spared.
*/ -}}

{{- define "kueue-fallback.toBeMoved" -}}
(has(object.metadata.annotations) && 'kueue-fallback.dev/move-to' in object.metadata.annotations
&& (!has(oldObject.metadata.annotations)
|| !('kueue-fallback.dev/move-to' in oldObject.metadata.annotations)
|| object.metadata.annotations['kueue-fallback.dev/move-to']
!= oldObject.metadata.annotations['kueue-fallback.dev/move-to']))
{{- end -}}
