/* SPDX-License-Identifier: Apache-2.0 */
/* Which functions the described driver's NVML has. */
#include "sim/exports.h"
#include "sim/nvml_sim.h"

#include <stdlib.h>
#include <string.h>

/*
 * The first of the drivers that the simulator knows by a short name to have it; those not listed
 * were in 440's. From NVML's published changes, not measured.
 */
static const struct {
    const char *name;
    unsigned driver;
} since[] = {
    {"nvmlDeviceGetArchitecture", 470},
    {"nvmlDeviceGetAttributes", 470},
    {"nvmlDeviceGetAttributes_v2", 470},
    {"nvmlDeviceGetComputeInstanceId", 470},
    {"nvmlDeviceGetComputeRunningProcesses_v2", 470},
    {"nvmlDeviceGetComputeRunningProcesses_v3", 535},
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
    {"nvmlDeviceGetRunningProcessDetailList", 535},
    {"nvmlDeviceGetTemperatureV", 580},
    {"nvmlDeviceIsMigDeviceHandle", 470},
    {"nvmlEventSetWait_v2", 470},
};

static bool is_absent(const char *name)
{
    unsigned long driver = strtoul(sim_description()->driver_version, NULL, 10);
    for (size_t i = 0; i < sizeof since / sizeof since[0]; i++) {
        if (strcmp(name, since[i].name) == 0)
            return since[i].driver > driver;
    }
    return false;
}

__attribute__((constructor)) static void hide(void)
{
    sim_exports_hide(is_absent);
}
