{{/* Generated from config/rbac/role.yaml by make generate. */}}
{{- define "ackrail.managerRules" -}}
- apiGroups:
  - ""
  resources:
  - configmaps
  - serviceaccounts
  - services
  verbs:
  - create
  - get
  - list
  - patch
  - watch
- apiGroups:
  - ""
  resources:
  - secrets
  verbs:
  - get
- apiGroups:
  - ackrail.io
  resources:
  - eventreplays
  verbs:
  - delete
  - list
  - watch
- apiGroups:
  - ackrail.io
  resources:
  - eventreplays/status
  - webhookendpoints/status
  verbs:
  - patch
- apiGroups:
  - ackrail.io
  resources:
  - webhookendpoints
  verbs:
  - list
  - watch
- apiGroups:
  - ackrail.io
  resources:
  - webhookendpoints/finalizers
  verbs:
  - update
- apiGroups:
  - apps
  resources:
  - deployments
  verbs:
  - create
  - get
  - list
  - patch
  - watch
- apiGroups:
  - events.k8s.io
  resources:
  - events
  verbs:
  - create
  - patch
- apiGroups:
  - networking.k8s.io
  resources:
  - networkpolicies
  verbs:
  - create
  - get
  - list
  - patch
  - watch
- apiGroups:
  - policy
  resources:
  - poddisruptionbudgets
  verbs:
  - create
  - get
  - list
  - patch
  - watch
{{- end }}
