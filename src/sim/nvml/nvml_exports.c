/* SPDX-License-Identifier: Apache-2.0 */
/* Which functions the described driver's NVML has. */
#include "sim/machine/exports.h"
#include "sim/nvml/nvml_sim.h"

#include <stdio.h>
#include <string.h>

/*
 * The first of the drivers that the simulator knows by a short name to have it; those not listed
 * were in 440's. From NVML's published changes, not measured.
 */
static const struct {
    const char *name;
    unsigned driver;
} since[] = {
    {"nvmlDeviceGetAccountingStats_v2", 590},
    {"nvmlDeviceGetArchitecture", 470},
    {"nvmlDeviceGetAttributes", 470},
    {"nvmlDeviceGetAttributes_v2", 470},
    {"nvmlDeviceGetComputeInstanceId", 470},
    {"nvmlDeviceGetComputeRunningProcesses_v2", 470},
    {"nvmlDeviceGetComputeRunningProcesses_v3", 535},
    {"nvmlDeviceGetConfComputeMemSizeInfo", 535},
    {"nvmlDeviceGetConfComputeProtectedMemoryUsage", 535},
    {"nvmlDeviceGetCpuAffinityWithinScope", 470},
    {"nvmlDeviceGetCurrentClocksEventReasons", 535},
    {"nvmlDeviceGetDeviceHandleFromMigDeviceHandle", 470},
    {"nvmlDeviceGetFanSpeed_v2", 470},
    {"nvmlDeviceGetGpuFabricInfo", 535},
    {"nvmlDeviceGetGpuFabricInfoV", 580},
    {"nvmlDeviceGetGpuInstanceId", 470},
    {"nvmlDeviceGetGpuMaxPcieLinkGeneration", 535},
    {"nvmlDeviceGetGraphicsRunningProcesses_v2", 470},
    {"nvmlDeviceGetGraphicsRunningProcesses_v3", 535},
    {"nvmlDeviceGetGspFirmwareMode", 535},
    {"nvmlDeviceGetGspFirmwareVersion", 535},
    {"nvmlDeviceGetJpgUtilization", 535},
    {"nvmlDeviceGetMPSComputeRunningProcesses", 470},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v2", 470},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v3", 535},
    {"nvmlDeviceGetMaxMigDeviceCount", 470},
    {"nvmlDeviceGetMemoryAffinity", 470},
    {"nvmlDeviceGetMemoryBusWidth", 535},
    {"nvmlDeviceGetMemoryInfo_v2", 535},
    {"nvmlDeviceGetMigDeviceHandleByIndex", 470},
    {"nvmlDeviceGetMigMode", 470},
    {"nvmlDeviceGetModuleId", 535},
    {"nvmlDeviceGetNumFans", 470},
    {"nvmlDeviceGetNumGpuCores", 535},
    {"nvmlDeviceGetNumaNodeId", 580},
    {"nvmlDeviceGetNvLinkRemotePciInfo_v2", 470},
    {"nvmlDeviceGetOfaUtilization", 535},
    {"nvmlDeviceGetProcessesUtilizationInfo", 580},
    {"nvmlDeviceGetRemappedRows", 470},
    {"nvmlDeviceGetRowRemapperHistogram", 470},
    {"nvmlDeviceGetTemperatureV", 580},
    {"nvmlDeviceIsMigDeviceHandle", 470},
    {"nvmlEventSetWait_v2", 470},
};

bool nvml_driver_is_before(unsigned driver, unsigned minor)
{
    unsigned own = 0, own_minor = 0;
    (void)sscanf(sim_description()->driver_version, "%u.%u", &own, &own_minor);
    return own < driver || (own == driver && own_minor < minor);
}

static bool is_absent(const char *name)
{
    if (strcmp(name, "nvmlDeviceGetRunningProcessDetailList") == 0)
        return nvml_driver_is_before(NVML_DETAIL_LIST_DRIVER, NVML_DETAIL_LIST_MINOR);
    for (size_t i = 0; i < sizeof since / sizeof since[0]; i++) {
        if (strcmp(name, since[i].name) == 0)
            return nvml_driver_is_before(since[i].driver, 0);
    }
    return false;
}

__attribute__((constructor)) static void hide(void)
{
    sim_exports_hide(is_absent);
}
