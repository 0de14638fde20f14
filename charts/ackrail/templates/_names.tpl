{{/* The first part of every name. */}}
{{- define "ackrail.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "ackrail.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (printf "%s-manager" (include "ackrail.fullname" .)) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{/* What never changes, since a Deployment's selector cannot. */}}
{{- define "ackrail.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The labels of an object, from a list of the root, the component or "", and further labels. */}}
{{- define "ackrail.labels" -}}
{{- $root := index . 0 -}}
{{- $labels := fromYaml (include "ackrail.selectorLabels" $root) -}}
{{- $_ := set $labels "app.kubernetes.io/version" $root.Chart.AppVersion -}}
{{- $_ := set $labels "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- $_ := set $labels "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- with index . 1 -}}
{{- $_ := set $labels "app.kubernetes.io/component" . -}}
{{- end -}}
{{- toYaml (merge $labels (index . 2) $root.Values.extraLabels) -}}
{{- end }}

{{- define "ackrail.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* "true" where the manager serves metrics, else nothing: to check who asks takes a ClusterRole. */}}
{{- define "ackrail.servesMetrics" -}}
{{- if and .Values.metrics.enabled (not (and .Values.watchNamespaces .Values.metrics.secure)) -}}
true
{{- end -}}
{{- end }}

{{/* The Secret with the certificate of the metrics, or nothing. */}}
{{- define "ackrail.metricsCertificate" -}}
{{- if and .Values.metrics.secure (include "ackrail.servesMetrics" .) -}}
{{- .Values.metrics.certificateSecret -}}
{{- end -}}
{{- end }}
