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

{{/* monitorimage: a text, as in HAMi's older charts */}}
{{- define "vgpu.monitorImage" -}}
{{- $image := .Values.devicePlugin.monitorimage | default .Values.devicePlugin.monitor.image -}}
{{- if kindIs "string" $image -}}{{- $image = dict "repository" $image -}}{{- end -}}
{{- toYaml $image -}}
{{- end -}}

{{- define "vgpu.driverRoot" -}}
{{- $root := .Values.devicePlugin.nvidiaDriverRoot | default "/" -}}
{{- if eq $root "auto" }}/{{ else }}{{ $root }}{{ end -}}
{{- end -}}

{{/* The first pull policy of a list of images (texts are policies themselves, as older charts have them). */}}
{{- define "vgpu.pullPolicy" -}}
{{- $found := "" -}}
{{- range . -}}
{{- $policy := "" -}}
{{- if kindIs "map" . }}{{ $policy = .pullPolicy }}{{ else if has . (list "Always" "IfNotPresent" "Never") }}{{ $policy = . }}{{ end -}}
{{- if not $found }}{{ $found = $policy | default "" }}{{ end -}}
{{- end -}}
{{- $found | default "IfNotPresent" -}}
{{- end -}}

{{/* imagePullSecrets, or nothing: (dict "root" $ "images" list) */}}
{{- define "vgpu.pullSecrets" -}}
{{- $names := .root.Values.global.imagePullSecrets | default list -}}
{{- range .root.Values.imagePullSecrets -}}
{{- if kindIs "map" . }}{{ $names = append $names .name }}{{ else }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- range .images -}}
{{- if kindIs "map" . }}{{ $names = concat $names (.pullSecrets | default list) }}{{ end -}}
{{- end -}}
{{- with $names | uniq -}}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "vgpu.scheduler" -}}
{{- printf "%s-scheduler" (include "vgpu.fullname" .) -}}
{{- end -}}

{{- define "vgpu.webhook" -}}
{{- printf "%s-webhook" (include "vgpu.fullname" .) -}}
{{- end -}}

{{- define "vgpu.tls" -}}
{{- printf "%s-scheduler-tls" (include "vgpu.fullname" .) -}}
{{- end -}}

{{/* The Secret of the proof key; "": there are no proofs. */}}
{{- define "vgpu.proof" -}}
{{- if and .Values.scheduler.enabled .Values.scheduler.proof.enabled -}}
{{- .Values.scheduler.proof.secretName | default (printf "%s-scheduler-proof" (include "vgpu.fullname" .)) -}}
{{- end -}}
{{- end -}}

{{- define "vgpu.ownProof" -}}
{{- if and (include "vgpu.proof" .) (not .Values.scheduler.proof.secretName) }}true{{ end -}}
{{- end -}}

{{/* The Lease is that of the kube-scheduler in the same Pod. */}}
{{- define "vgpu.leaderElect" -}}
{{- if and .Values.scheduler.leaderElect .Values.scheduler.kubeScheduler.enabled }}true{{ end -}}
{{- end -}}

{{/* Of filter and bind, on the Pod's loopback address alone: beside the webhook's port. */}}
{{- define "vgpu.extenderPort" -}}
{{- $port := .Values.scheduler.service.httpTargetPort | int -}}
{{- lt $port 65535 | ternary (add $port 1) (sub $port 1) -}}
{{- end -}}

{{/* Of an image's tag where it is one, else of the cluster: what follows the patch version is left out. */}}
{{- define "vgpu.kubeSchedulerTag" -}}
{{- $kube := .Values.scheduler.kubeScheduler -}}
{{- $tag := $kube.imageTag -}}
{{- if kindIs "map" $kube.image }}{{ $tag = $kube.image.tag | default $tag }}{{ end -}}
{{- $tag | default (regexFind "^v?[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version) -}}
{{- end -}}

{{- define "vgpu.kubeSchedulerMinor" -}}
{{- $version := regexFind "^v?1\\.[0-9]+" (include "vgpu.kubeSchedulerTag" .) | default .Capabilities.KubeVersion.Version -}}
{{- regexFind "\\.[0-9]+" $version | trimPrefix "." -}}
{{- end -}}

{{- define "vgpu.kubeSchedulerImage" -}}
{{- $image := .Values.scheduler.kubeScheduler.image -}}
{{- if kindIs "string" $image }}{{ $image = dict "repository" $image }}{{ end -}}
{{- include "vgpu.image" (dict "root" . "image" (dict "registry" $image.registry "repository" $image.repository "tag" (include "vgpu.kubeSchedulerTag" .)) "base" (dict)) -}}
{{- end -}}

{{/* Names by which the API server calls the webhook. */}}
{{- define "vgpu.certificateNames" -}}
{{- $service := include "vgpu.scheduler" . -}}
{{- $space := include "vgpu.namespace" . -}}
{{- $names := list $service (printf "%s.%s" $service $space) (printf "%s.%s.svc" $service $space) -}}
{{- if .Values.scheduler.admissionWebhook.customURL.enabled }}{{ $names = append $names .Values.scheduler.admissionWebhook.customURL.host }}{{ end -}}
{{- $names | uniq | join "," -}}
{{- end -}}

{{/* Users that may write annotations of assignments. */}}
{{- define "vgpu.owners" -}}
{{- $owners := list -}}
{{- range list (include "vgpu.scheduler" .) (include "vgpu.device-plugin" .) -}}
{{- $owners = append $owners (printf "system:serviceaccount:%s:%s" (include "vgpu.namespace" $) .) -}}
{{- end -}}
{{- concat $owners .Values.scheduler.admissionWebhook.ownedKeys.owners | uniq | join "," -}}
{{- end -}}

{{- define "vgpu.hasMatchConditions" -}}
{{- if semverCompare ">=1.28.0-0" .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end -}}

{{/* Whether the webhook changes only Pods that ask for devices. */}}
{{- define "vgpu.onlyDevicePods" -}}
{{- if not (or (include "vgpu.isTrue" .Values.scheduler.overwriteEnv) (not (has .Values.devices.nvidia.gpuCorePolicy (list "" "default"))) (index .Values "device-config").content) }}true{{ end -}}
{{- end -}}

{{- define "vgpu.asksForDevices" -}}
{{- $names := list -}}
{{- range list .Values.resourceName .Values.resourceMem .Values.resourceMemPercentage .Values.resourceCores .Values.resourcePriority | uniq -}}
{{- $names = append $names (printf "'%s'" .) -}}
{{- end -}}
{{- $asks := list -}}
{{- range list "limits" "requests" -}}
{{- $asks = append $asks (printf "(has(c.resources.%s) && c.resources.%s.exists(k, k in [%s]))" . . (join ", " $names)) -}}
{{- end -}}
{{- $ask := printf "has(c.resources) && (%s)" (join " || " $asks) -}}
object.spec.containers.exists(c, {{ $ask }})
|| (has(object.spec.initContainers) && object.spec.initContainers.exists(c, {{ $ask }}))
{{- end -}}

{{/* The keys of src/admission/owned_keys.c: one that was not there, or with another value, or that goes. */}}
{{- define "vgpu.ownedKeysChange" -}}
{{- $parts := list -}}
{{- range list "annotations" "labels" -}}
{{- $own := "k.matches('^(hami[.]io/(bind|vgpu)-|vgpu[.]io/(grant|proof))')" -}}
{{- $now := printf "object.metadata.%s" . -}}
{{- $old := printf "oldObject.metadata.%s" . -}}
{{- $parts = append $parts (printf "(has(%s) && %s.exists(k, %s && !(oldObject != null && has(%s) && k in %s && %s[k] == %s[k])))" $now $now $own $old $old $old $now) -}}
{{- $parts = append $parts (printf "(oldObject != null && has(%s) && %s.exists(k, %s && !(has(%s) && k in %s)))" $old $old $own $now $now) -}}
{{- end -}}
{{- join "\n|| " $parts -}}
{{- end -}}

{{/* (dict "root" $ "path" of the service "custom" path of a URL) */}}
{{- define "vgpu.webhookClient" -}}
{{- $url := .root.Values.scheduler.admissionWebhook.customURL -}}
{{- if $url.enabled -}}
url: {{ printf "https://%s:%d%s" $url.host ($url.port | int) .custom | quote }}
{{- else -}}
service:
  name: {{ include "vgpu.scheduler" .root }}
  namespace: {{ include "vgpu.namespace" .root }}
  path: {{ .path }}
  port: {{ .root.Values.scheduler.service.httpPort | int64 }}
{{- end -}}
{{- end -}}

{{/* One a line; "": there is nothing to make. */}}
{{- define "vgpu.certgenArguments" -}}
{{- $arguments := list -}}
{{- if not .Values.scheduler.certManager.enabled -}}
{{- $arguments = append $arguments (printf "--secret-name=%s" (include "vgpu.tls" .)) -}}
{{- $arguments = append $arguments (printf "--names=%s" (include "vgpu.certificateNames" .)) -}}
{{- if .Values.scheduler.admissionWebhook.enabled -}}
{{- $arguments = append $arguments (printf "--mutating-webhook=%s" (include "vgpu.webhook" .)) -}}
{{- $arguments = append $arguments (printf "--validating-webhook=%s" (include "vgpu.webhook" .)) -}}
{{- end -}}
{{- end -}}
{{- if include "vgpu.ownProof" . -}}
{{- $arguments = append $arguments (printf "--proof-secret-name=%s" (include "vgpu.proof" .)) -}}
{{- end -}}
{{- if $arguments -}}
{{- prepend $arguments (printf "--namespace=%s" (include "vgpu.namespace" .)) | join "\n" -}}
{{- end -}}
{{- end -}}

{{/* Values of HAMi's charts that are accepted and have no effect here, of those that are set; by commas. */}}
{{- define "vgpu.withoutEffect" -}}
{{- $found := list -}}
{{- range $key, $value := .Values -}}
{{- if regexMatch "^(mlu|hcu|dcu|iluvatar|metax|enflame|kunlun|vastai|biren)" $key }}{{ $found = append $found $key }}{{ end -}}
{{- end -}}
{{- range $key, $value := .Values.devices -}}
{{- if ne $key "nvidia" }}{{ $found = append $found (printf "devices.%s" $key) }}{{ end -}}
{{- end -}}
{{- range $path := list "podSecurityPolicy" "mockDevicePlugin" "platform" "openshift" "selinux" "version" "dra" "global.managedNodeSelectorEnable" "global.managedNodeSelector" "scheduler.kubeQPS" "scheduler.kubeBurst" "scheduler.kubeTimeout" "scheduler.validatingWebhook" "scheduler.serviceAccountName" "scheduler.patch.imageNew" "scheduler.service.schedulerLogPort" "scheduler.service.schedulerLogTargetPort" "devicePlugin.gpuOperatorToolkitReady" "devicePlugin.nvidiaHookPath" "devicePlugin.numaRefit" "devicePlugin.hostPIDBroker" "devicePlugin.vgpuMonitor" "devicePlugin.service.schedulerPort" -}}
{{- $at := $.Values -}}
{{- $is := true -}}
{{- range splitList "." $path -}}
{{- if and $is (kindIs "map" $at) }}{{ $is = hasKey $at . }}{{ if $is }}{{ $at = index $at . }}{{ end }}{{ else }}{{ $is = false }}{{ end -}}
{{- end -}}
{{- if $is }}{{ $found = append $found $path }}{{ end -}}
{{- end -}}
{{- join ", " $found -}}
{{- end -}}

{{/* Values of HAMi's chart that could not be followed end the rendering with a line. */}}
{{- define "vgpu.check" -}}
{{- $vgpu := printf "%s/vgpu" (trimSuffix "/" .Values.global.gpuHookPath) -}}
{{- with .Values.devicePlugin.libPath -}}
{{- if ne (trimSuffix "/" .) $vgpu -}}
{{- fail (printf "devicePlugin.libPath is %s: only %s is accepted, which follows from global.gpuHookPath" . $vgpu) -}}
{{- end -}}
{{- end -}}
{{- with .Values.devicePlugin.monitorctrPath | default .Values.devicePlugin.monitor.ctrPath -}}
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
{{- range list (include "vgpu.image" (dict "root" . "image" .Values.devicePlugin.image "base" (dict))) (include "vgpu.image" (dict "root" . "image" (include "vgpu.monitorImage" . | fromYaml) "base" .Values.devicePlugin.image)) -}}
{{- if contains "projecthami/" . -}}
{{- fail (printf "the image is %s: vgpu's own image is accepted (devicePlugin.image, devicePlugin.monitor.image, global.imageTag)" .) -}}
{{- end -}}
{{- end -}}
{{- with .Values.scheduler -}}
{{- if .enabled -}}
{{- range list (include "vgpu.image" (dict "root" $ "image" .extender.image "base" $.Values.devicePlugin.image)) (include "vgpu.image" (dict "root" $ "image" .patch.image "base" $.Values.devicePlugin.image)) -}}
{{- if or (contains "projecthami/" .) (contains "webhook-certgen" .) -}}
{{- fail (printf "the image is %s: vgpu's own image is accepted (scheduler.extender.image, scheduler.patch.image, global.imageTag)" .) -}}
{{- end -}}
{{- end -}}
{{- if and .admissionWebhook.enabled (not .certManager.enabled) (not .patch.enabled) -}}
{{- fail "scheduler.admissionWebhook.enabled needs scheduler.patch.enabled or scheduler.certManager.enabled" -}}
{{- end -}}
{{- if and (include "vgpu.ownProof" $) (not .patch.enabled) -}}
{{- fail "scheduler.proof.enabled needs scheduler.patch.enabled, or the name of a Secret with a key in scheduler.proof.secretName" -}}
{{- end -}}
{{- if and (gt (.replicas | int) 1) (not (include "vgpu.leaderElect" $)) -}}
{{- fail (printf "scheduler.replicas is %d: 1 is accepted without scheduler.leaderElect and scheduler.kubeScheduler.enabled" (.replicas | int)) -}}
{{- end -}}
{{- if not (has .defaultSchedulerPolicy.nodeSchedulerPolicy (list "binpack" "spread")) -}}
{{- fail (printf "scheduler.defaultSchedulerPolicy.nodeSchedulerPolicy is %v: binpack or spread is accepted" .defaultSchedulerPolicy.nodeSchedulerPolicy) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.devicePlugin.createRuntimeClass (not .Values.devicePlugin.runtimeClassName) -}}
{{- fail "devicePlugin.createRuntimeClass needs devicePlugin.runtimeClassName" -}}
{{- end -}}
{{- end -}}
