/* SPDX-License-Identifier: Apache-2.0 */
/* What a hook is: a plain function `hook_<name>` that the linker exports under the driver's name.
 * Declared here from the lists in driver/, so that a row without a body fails to link, a body
 * without a row or with a wrong signature fails to compile, and so does a call of ours to an
 * exported name instead of the driver's own function in `cuda` or `nvml`. */
#ifndef VGPU_HOOK_HOOK_H
#define VGPU_HOOK_HOOK_H

#include "container/container.h"
#include "container/device.h"
#include "driver/cuda.h"
#include "driver/nvml.h"
#include "hook/report_file.h"
#include "memory/memory.h"
#include "pace/channels.h"
#include "pace/halt.h"

#define EXPORT __attribute__((visibility("default")))

/* The guard follows the hook's own declaration, which asks for the type of the guarded name. */
#ifdef __clang__
#define HOOK_GUARD(text) __attribute__((unavailable(text)))
#else
#define HOOK_GUARD(text) __attribute__((error(text)))
#endif

#define CALL(name)
#define HOOK(name)                                                                                 \
    __typeof__(name) hook_##name __asm__(#name) EXPORT;                                            \
    __typeof__(name) name HOOK_GUARD("calls our own hook; the driver's is in the table");
#include "driver/cuda.def"
#include "driver/nvml.def"
#undef CALL
#undef HOOK

/* First statement of every CUDA hook that may be a process's first call, or touches our state: all
 * but launches and synchronisation, which are counted in by themselves where they call the driver
 * (pace/halt.h). */
#define hook_enter()                                                                               \
    HALT_GUARD();                                                                                  \
    hook_begin()

static inline void hook_begin(void)
{
    container_enter();
    (void)cuda_load(true);
    channels_look_after();
    report_look(REPORT_CALL_CUDA);
}

/* First statement of every NVML hook. */
static inline void hook_nvml_enter(void)
{
    container_enter();
    (void)nvml_load(true);
    container_prepare_devices();
    report_look(REPORT_CALL_NVML);
}

#endif
