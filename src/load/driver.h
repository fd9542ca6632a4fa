/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's functions that the load generator calls, found at run time, and what it does when
 * one fails: it says which and why, and ends the program. */
#ifndef VGPU_LOAD_DRIVER_H
#define VGPU_LOAD_DRIVER_H

#include "abi/cuda.h"
#include "abi/nvml.h"

#include <stdbool.h>

/* Exit statuses; --help tells them. */
#define LOAD_FAILED 1
#define LOAD_USAGE 2

/* In each driver from CUDA 10.2 on. */
#define LOAD_CUDA_NEEDED(ROW)                                                                      \
    ROW(cuInit)                                                                                    \
    ROW(cuDeviceGet)                                                                               \
    ROW(cuDeviceGetAttribute)                                                                      \
    ROW(cuDeviceGetName)                                                                           \
    ROW(cuDeviceGetPCIBusId)                                                                       \
    ROW(cuDevicePrimaryCtxRetain)                                                                  \
    ROW(cuCtxCreate_v2)                                                                            \
    ROW(cuCtxSetCurrent)                                                                           \
    ROW(cuCtxSynchronize)                                                                          \
    ROW(cuModuleLoadData)                                                                          \
    ROW(cuModuleGetFunction)                                                                       \
    ROW(cuOccupancyMaxActiveBlocksPerMultiprocessor)                                               \
    ROW(cuMemAlloc_v2)                                                                             \
    ROW(cuMemHostAlloc)                                                                            \
    ROW(cuMemHostGetDevicePointer_v2)                                                              \
    ROW(cuMemsetD32_v2)                                                                            \
    ROW(cuMemcpyHtoDAsync_v2)                                                                      \
    ROW(cuStreamCreate)                                                                            \
    ROW(cuStreamQuery)                                                                             \
    ROW(cuStreamSynchronize)                                                                       \
    ROW(cuStreamWaitEvent)                                                                         \
    ROW(cuStreamBeginCapture_v2)                                                                   \
    ROW(cuStreamEndCapture)                                                                        \
    ROW(cuGraphLaunch)                                                                             \
    ROW(cuEventCreate)                                                                             \
    ROW(cuEventRecord)                                                                             \
    ROW(cuEventQuery)                                                                              \
    ROW(cuEventSynchronize)                                                                        \
    ROW(cuEventElapsedTime)                                                                        \
    ROW(cuLaunchKernel)                                                                            \
    ROW(cuLaunchCooperativeKernel)                                                                 \
    ROW(cuLaunchHostFunc)                                                                          \
    ROW(cuGetErrorName)

/* NULL where the driver has none. */
#define LOAD_CUDA_WANTED(ROW)                                                                      \
    ROW(cuGetProcAddress)                                                                          \
    ROW(cuGetProcAddress_v2)                                                                       \
    ROW(cuGraphInstantiateWithFlags)                                                               \
    ROW(cuGraphInstantiate)                                                                        \
    ROW(cuGraphInstantiate_v2)                                                                     \
    ROW(cuStreamWaitValue32_v2)

#define LOAD_NVML(ROW)                                                                             \
    ROW(nvmlInit_v2)                                                                               \
    ROW(nvmlDeviceGetHandleByPciBusId_v2)                                                          \
    ROW(nvmlDeviceGetSamples)                                                                      \
    ROW(nvmlDeviceGetUtilizationRates)

#define LOAD_ROW(name) __typeof__(name) *name;
struct load_cuda {
    LOAD_CUDA_NEEDED(LOAD_ROW)
    LOAD_CUDA_WANTED(LOAD_ROW)
};
struct load_nvml {
    LOAD_NVML(LOAD_ROW)
};
#undef LOAD_ROW

extern struct load_cuda load_cuda;
extern struct load_nvml load_nvml;

/* The program's name in its messages; "vgpu-load" until it is set. */
extern const char *load_program;

/* One line on stderr with the program's name before it. */
void load_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void load_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Finds the CUDA driver, or ends the program. */
void load_cuda_open(void);

/* False where there is no NVML: nothing is said. */
bool load_nvml_open(void);

/* Lets the launches and marks of the null stream mean the thread's own: the _ptsz entry points. */
void load_cuda_per_thread(void);

/* Ends the program with the call's name and the error's, unless it succeeded. */
void load_check(CUresult result, const char *call);

/* How often that was called, or the next was: by the thread that works. */
unsigned load_returned(void);
void load_note_returned(void);
#define LOAD_CALL(name, ...) load_check(load_cuda.name(__VA_ARGS__), #name)

#endif
