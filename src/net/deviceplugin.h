/* SPDX-License-Identifier: Apache-2.0 */
/* The kubelet's gRPC methods for device plugins (v1beta1) and for pod resources (v1), beside the
 * messages of proto/. */
#ifndef VGPU_NET_DEVICEPLUGIN_H
#define VGPU_NET_DEVICEPLUGIN_H

#include "deviceplugin.pb-c.h"
#include "podresources.pb-c.h"

#define DEVICEPLUGIN_VERSION "v1beta1"
#define DEVICEPLUGIN_DIRECTORY "/var/lib/kubelet/device-plugins"
#define DEVICEPLUGIN_KUBELET_SOCKET "kubelet.sock" /* in that directory */
#define PODRESOURCES_SOCKET "/var/lib/kubelet/pod-resources/kubelet.sock"

/* Served by the kubelet. */
#define DEVICEPLUGIN_REGISTER "/v1beta1.Registration/Register"

/* Served by the plugin; ListAndWatch answers with a stream. */
#define DEVICEPLUGIN_GET_OPTIONS "/v1beta1.DevicePlugin/GetDevicePluginOptions"
#define DEVICEPLUGIN_LIST_AND_WATCH "/v1beta1.DevicePlugin/ListAndWatch"
#define DEVICEPLUGIN_GET_PREFERRED "/v1beta1.DevicePlugin/GetPreferredAllocation"
#define DEVICEPLUGIN_ALLOCATE "/v1beta1.DevicePlugin/Allocate"
#define DEVICEPLUGIN_PRE_START "/v1beta1.DevicePlugin/PreStartContainer"

/* Served by the kubelet at the other socket. Get is behind the feature gate KubeletPodResourcesGet
 * (alpha in Kubernetes 1.27): a kubelet without it answers with an error. */
#define PODRESOURCES_LIST "/v1.PodResourcesLister/List"
#define PODRESOURCES_GET "/v1.PodResourcesLister/Get"
#define PODRESOURCES_GET_ALLOCATABLE "/v1.PodResourcesLister/GetAllocatableResources"

#endif
