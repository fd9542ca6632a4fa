{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "vgpu.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "vgpu.fullname" -}}
{{- $name := include "vgpu.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* 40 characters of it leave room for what follows in a label's 63. */}}
{{- define "vgpu.device-plugin" -}}
{{- printf "%s-device-plugin" (include "vgpu.fullname" .) -}}
{{- end -}}

{{- define "vgpu.device-config" -}}
{{- printf "%s-scheduler-device" (include "vgpu.fullname" .) -}}
{{- end -}}

{{- define "vgpu.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- define "vgpu.selector" -}}
app.kubernetes.io/name: {{ include "vgpu.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* metadata of an object: (dict "root" $ "name" ... "component" ... "namespaced" bool "labels" map
"annotations" map) */}}
{{- define "vgpu.metadata" -}}
name: {{ .name }}
{{- if .namespaced }}
namespace: {{ include "vgpu.namespace" .root }}
{{- end }}
labels:
  helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/component: {{ .component }}
  {{- include "vgpu.selector" .root | nindent 2 }}
  {{- range $key, $value := merge (dict) (.labels | default dict) .root.Values.global.labels }}
  {{ $key }}: {{ $value | quote }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.global.annotations }}
annotations:
  {{- range $key, $value := . }}
  {{ $key }}: {{ $value | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* An image's name: (dict "root" $ "image" map "base" map); what "image" lacks is taken from "base". In HAMi's
older charts an image is a text. */}}
{{- define "vgpu.image" -}}
{{- $image := .image -}}
{{- if kindIs "string" $image -}}{{- $image = dict "repository" $image -}}{{- end -}}
{{- $base := .base -}}
{{- if kindIs "string" $base -}}{{- $base = dict "repository" $base -}}{{- end -}}
{{- $registry := .root.Values.global.imageRegistry | default $image.registry | default $base.registry -}}
{{- $repository := $image.repository | default $base.repository -}}
{{- $tag := $image.tag | default $base.tag | default .root.Values.global.imageTag | default .root.Chart.AppVersion -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ $repository }}:{{ $tag }}
{{- end -}}

{{/* Arguments of the user, without klog's verbosity, which HAMi's values have. */}}
{{- define "vgpu.extraArgs" -}}
{{- range . }}
{{- if not (regexMatch "^--?v(=.*)?$" (toString .)) }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* "true" or "", of a bool, a text, or null */}}
{{- define "vgpu.isTrue" -}}
{{- if eq (toString . | lower) "true" }}true{{ end -}}
{{- end -}}

{{- define "vgpu.driverRoot" -}}
{{- $root := .Values.devicePlugin.nvidiaDriverRoot | default "/" -}}
{{- if eq $root "auto" }}/{{ else }}{{ $root }}{{ end -}}
{{- end -}}

{{/* Values of HAMi's chart that could not be followed end the rendering with a line. */}}
{{- define "vgpu.check" -}}
{{- $vgpu := printf "%s/vgpu" (trimSuffix "/" .Values.global.gpuHookPath) -}}
{{- with .Values.devicePlugin.libPath -}}
{{- if ne (trimSuffix "/" .) $vgpu -}}
{{- fail (printf "devicePlugin.libPath is %s: only %s is accepted, which follows from global.gpuHookPath" . $vgpu) -}}
{{- end -}}
{{- end -}}
{{- with .Values.devicePlugin.monitor.ctrPath -}}
{{- if ne (trimSuffix "/" .) (printf "%s/containers" $vgpu) -}}
{{- fail (printf "devicePlugin.monitor.ctrPath is %s: only %s/containers is accepted, which follows from global.gpuHookPath" . $vgpu) -}}
{{- end -}}
{{- end -}}
{{- if not (hasPrefix "/" .Values.global.gpuHookPath) -}}
{{- fail (printf "global.gpuHookPath is %s: an absolute path is accepted" .Values.global.gpuHookPath) -}}
{{- end -}}
{{- if not (has .Values.devicePlugin.migStrategy (list "none" "mixed")) -}}
{{- fail (printf "devicePlugin.migStrategy is %v: none or mixed is accepted" .Values.devicePlugin.migStrategy) -}}
{{- end -}}
{{- range list (include "vgpu.image" (dict "root" . "image" .Values.devicePlugin.image "base" (dict))) (include "vgpu.image" (dict "root" . "image" .Values.devicePlugin.monitor.image "base" .Values.devicePlugin.image)) -}}
{{- if contains "projecthami/" . -}}
{{- fail (printf "the image is %s: vgpu's own image is accepted (devicePlugin.image, devicePlugin.monitor.image, global.imageTag)" .) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.devicePlugin.createRuntimeClass (not .Values.devicePlugin.runtimeClassName) -}}
{{- fail "devicePlugin.createRuntimeClass needs devicePlugin.runtimeClassName" -}}
{{- end -}}
{{- end -}}
