{{- /* What Kubernetes knows the Pods by. */ -}}
{{- define "trustplane.selector" -}}
app.kubernetes.io/name: trustplane
app.kubernetes.io/component: inject
{{- end }}

{{- /* On every object. */ -}}
{{- define "trustplane.labels" -}}
app.kubernetes.io/name: trustplane
app.kubernetes.io/part-of: trustplane
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "trustplane.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* The one account that reads Secrets and writes Routes. */ -}}
{{- define "trustplane.subjects" -}}
subjects:
- kind: ServiceAccount
  name: trustplane
  namespace: {{ .Release.Namespace | quote }}
{{- end }}

{{- /* Sets apart what a second installation has for the whole cluster. */ -}}
{{- define "trustplane.suffix" -}}
{{- if ne .Release.Namespace "trustplane" }}-{{ .Release.Namespace }}{{ end }}
{{- end }}
