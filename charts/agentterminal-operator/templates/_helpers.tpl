{{/* The name of everything of the operator: the release's, with the chart's where it does not hold it yet. It leaves
room for what is put behind it: the name of a Service has 63 characters at most. */}}
{{- define "operator.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 47 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name "operator" | trunc 47 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "gateway.name" -}}
{{- include "operator.name" . }}-gateway
{{- end -}}

{{/* The name of everything cluster-wide: two releases in two namespaces do not meet. */}}
{{- define "operator.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "operator.name" .) -}}
{{- end -}}

{{- define "gateway.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "gateway.name" .) -}}
{{- end -}}

{{/* The same for kinds whose names admit no colon; a hash stands for what is too long. */}}
{{- define "operator.plainClusterName" -}}
{{- $whole := printf "%s-%s" .Release.Namespace (include "operator.name" .) -}}
{{- if gt (len $whole) 50 -}}
{{- printf "%s-%s" (trunc 41 $whole | trimSuffix "-") (sha256sum $whole | trunc 8) -}}
{{- else -}}
{{- $whole -}}
{{- end -}}
{{- end -}}

{{- define "operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "operator.name" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name must name an existing ServiceAccount when serviceAccount.create is false." .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "gateway.serviceAccount" -}}
{{- if .Values.gateway.serviceAccount.create -}}
{{- default (include "gateway.name" .) .Values.gateway.serviceAccount.name -}}
{{- else -}}
{{- required "gateway.serviceAccount.name must name an existing ServiceAccount when gateway.serviceAccount.create is false." .Values.gateway.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "operator.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "gateway.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: gateway
{{- end -}}

{{- define "chart.moreLabels" -}}
app.kubernetes.io/part-of: agentterminal
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "operator.labels" -}}
{{ include "operator.selector" . }}
{{ include "chart.moreLabels" . }}
{{- end -}}

{{- define "gateway.labels" -}}
{{ include "gateway.selector" . }}
{{ include "chart.moreLabels" . }}
{{- end -}}

{{/* What belongs to neither process: the kind, roles for people. */}}
{{- define "chart.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{ include "chart.moreLabels" . }}
{{- end -}}

{{- define "operator.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "operator.subject" -}}
- kind: ServiceAccount
  name: {{ include "operator.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{- define "gateway.subject" -}}
- kind: ServiceAccount
  name: {{ include "gateway.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{/* Refuse a switch whose kind the cluster does not have: `context`, `value`, `api`, `of`. */}}
{{- define "chart.needs" -}}
{{- if not (.context.Capabilities.APIVersions.Has .api) -}}
{{- fail (printf "%s needs the kind %s, which this cluster does not have. Install %s first, or leave the value as it is by default." .value .api .of) -}}
{{- end -}}
{{- end -}}

{{/* Where a pod runs, and with whom: `root`, `values` (of the process) and `selector` (its labels). */}}
{{- define "pod.placement" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- if .values.priorityClassName }}
priorityClassName: {{ .values.priorityClassName }}
{{- else if .root.Values.priorityClass.create }}
priorityClassName: {{ include "operator.plainClusterName" .root }}
{{- end }}
{{- with .root.Values.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if .values.topologySpreadConstraints }}
  {{- toYaml .values.topologySpreadConstraints | nindent 2 }}
{{- else }}
  # On nodes of their own where that is possible: one beside another dies with it.
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- .selector | nindent 8 }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.extraInitContainers }}
initContainers: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What both processes are told in the same words. */}}
{{- define "pod.sharedEnvironment" -}}
- name: AGENTTERMINAL_LOG_LEVEL
  value: {{ .Values.log.level | quote }}
- name: AGENTTERMINAL_LOG_FORMAT
  value: {{ .Values.log.format | quote }}
{{- with .Values.spritesUrl }}
- name: AGENTTERMINAL_SPRITES_URL
  value: {{ . | quote }}
{{- end }}
{{- if .Values.ownToken.secretName }}
- name: AGENTTERMINAL_SPRITES_TOKEN_FILE
  value: /run/agentterminal/token
- name: AGENTTERMINAL_OWN_TOKEN_NAMESPACES
  value: {{ join "," .Values.ownToken.namespaces | quote }}
- name: AGENTTERMINAL_OWN_TOKEN_SPRITES
  value: {{ join "," .Values.ownToken.sprites | quote }}
{{- end }}
{{- end -}}

{{/* Mounted as a folder, not by subPath, so that a rotated token arrives. */}}
{{- define "pod.ownTokenVolume" -}}
- name: own-token
  secret:
    secretName: {{ .Values.ownToken.secretName }}
    defaultMode: 0440
    items:
      - key: {{ .Values.ownToken.key }}
        path: token
{{- end -}}

{{/* Every name by which the gateway's Service is reached in the cluster. */}}
{{- define "gateway.serviceNames" -}}
{{- $name := include "gateway.name" . -}}
{{- list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) | toJson -}}
{{- end -}}

{{/* The Secret with the gateway's certificate; empty: plain HTTP. Anything but exactly one of three ways is refused. */}}
{{- define "gateway.tlsSecret" -}}
{{- $tls := .Values.gateway.tls -}}
{{- $ways := 0 -}}
{{- if $tls.secretName }}{{ $ways = add1 $ways }}{{ end -}}
{{- if $tls.certManager.enabled }}{{ $ways = add1 $ways }}{{ end -}}
{{- if $tls.plain }}{{ $ways = add1 $ways }}{{ end -}}
{{- if ne (int $ways) 1 -}}
{{- fail "The gateway needs exactly one of gateway.tls.secretName (a Secret with a certificate), gateway.tls.certManager.enabled (cert-manager makes one) and gateway.tls.plain (something in front of it ends TLS)." -}}
{{- end -}}
{{- if $tls.secretName -}}
{{- $tls.secretName -}}
{{- else if $tls.certManager.enabled -}}
{{- include "gateway.name" . }}-tls
{{- end -}}
{{- end -}}
