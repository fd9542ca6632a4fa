/* SPDX-License-Identifier: Apache-2.0 */
/* NVML, opened at run time: the plugin starts on a node before its driver is there. One thread at a
 * time. A function that the driver's library lacks answers NVML_ERROR_FUNCTION_NOT_FOUND. */
#ifndef VGPU_NODE_NVML_H
#define VGPU_NODE_NVML_H

#include "abi/nvml.h"
#include "net/error.h"

#include <stdbool.h>

#define NVML_FUNCTIONS(USE)                                                                        \
    USE(nvmlInit_v2)                                                                               \
    USE(nvmlShutdown)                                                                              \
    USE(nvmlErrorString)                                                                           \
    USE(nvmlSystemGetDriverVersion)                                                                \
    USE(nvmlDeviceGetCount_v2)                                                                     \
    USE(nvmlDeviceGetHandleByIndex_v2)                                                             \
    USE(nvmlDeviceGetUUID)                                                                         \
    USE(nvmlDeviceGetName)                                                                         \
    USE(nvmlDeviceGetPciInfo_v3)                                                                   \
    USE(nvmlDeviceGetMinorNumber)                                                                  \
    USE(nvmlDeviceGetMemoryInfo)                                                                   \
    USE(nvmlDeviceGetUtilizationRates)                                                             \
    USE(nvmlDeviceGetTotalEnergyConsumption)                                                       \
    USE(nvmlDeviceGetMigMode)                                                                      \
    USE(nvmlDeviceGetMaxMigDeviceCount)                                                            \
    USE(nvmlDeviceGetMigDeviceHandleByIndex)                                                       \
    USE(nvmlDeviceGetGpuInstanceId)                                                                \
    USE(nvmlDeviceGetComputeInstanceId)                                                            \
    USE(nvmlDeviceGetAttributes_v2)                                                                \
    USE(nvmlDeviceGetTopologyCommonAncestor)                                                       \
    USE(nvmlDeviceGetNvLinkState)                                                                  \
    USE(nvmlDeviceGetNvLinkRemotePciInfo_v2)                                                       \
    USE(nvmlDeviceGetSupportedEventTypes)                                                          \
    USE(nvmlDeviceRegisterEvents)                                                                  \
    USE(nvmlEventSetCreate)                                                                        \
    USE(nvmlEventSetFree)                                                                          \
    USE(nvmlEventSetWait_v2)

/* All zero: not open. */
struct nvml {
    void *library;
#define NVML_MEMBER(function) __typeof__(function) *function;
    NVML_FUNCTIONS(NVML_MEMBER)
#undef NVML_MEMBER
};

#define nvml_call(nvml, function, ...)                                                             \
    ((nvml)->function ? (nvml)->function(__VA_ARGS__) : NVML_ERROR_FUNCTION_NOT_FOUND)

/* Opens libnvidia-ml.so.1 and initialises it. It is looked for below `inside` (the driver's root as
 * this process sees it), below `root` where that is another than "/", by its plain name (which
 * honours LD_LIBRARY_PATH), and at last in the directories of "/". Either may be "". Returns 0;
 * -ENOENT: there is no such library; -EIO: the driver refuses. Then it is not open. */
int nvml_open(struct nvml *nvml, const char *inside, const char *root, struct error *error)
    __attribute__((warn_unused_result));
/* Shuts it down and unloads it, so that the next nvml_open may find another driver's. */
void nvml_close(struct nvml *nvml);

/* The library's words for a result; never NULL. */
const char *nvml_text(const struct nvml *nvml, nvmlReturn_t result);

#endif
