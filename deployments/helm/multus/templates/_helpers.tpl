{{- define "multus.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "multus.pull" }}
image: {{ include "multus.image" . }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
terminationMessagePolicy: FallbackToLogsOnError
{{- end }}

{{- /* A container that may write where the host's root may, and nothing else. */}}
{{- define "multus.writer" }}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  add: [DAC_OVERRIDE]
{{- end }}

{{- define "multus.nodeName" }}
env:
  - name: MULTUS_NODE_NAME
    valueFrom:
      fieldRef:
        fieldPath: spec.nodeName
{{- end }}

{{- define "multus.installer" }}
- name: install-multus-binary
  {{- include "multus.pull" . | indent 2 }}
  command: [/usr/src/multus-cni/bin/install_multus]
  args: [--type={{ .Values.type }}, --dest-dir=/host{{ .Values.cniBinDir }}]
  resources:
    requests:
      cpu: 10m
      memory: 32Mi
    limits:
      memory: 128Mi
  securityContext:
    {{- if eq .Values.type "thick" }}
    runAsUser: 0
    seccompProfile:
      type: RuntimeDefault
    seLinuxOptions:
      type: spc_t
    {{- end }}
    {{- include "multus.writer" . | indent 4 }}
  volumeMounts:
    - name: cnibin
      mountPath: /host{{ .Values.cniBinDir }}
{{- end }}

{{- define "multus.roleBinding" }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels:
    app: {{ .app }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .name }}
subjects:
  {{- if .ofNodes }}
  - apiGroup: rbac.authorization.k8s.io
    kind: Group
    name: system:multus
  {{- else }}
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
  {{- end }}
{{- end }}
