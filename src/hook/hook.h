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
 * but launches and synchronisation. */
static inline void hook_enter(void)
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

/* Another copy of this library (libvgpu.so beside libvgpu-control.so, say) comes before this one in
 * the process and does the work: dlsym, dlvsym and ioctl pass everything on. Known from the load
 * on.
 */
extern bool hook_is_spare;

/* Answers a dlsym or cuGetProcAddress: the hook that stands for the driver's function `real`, or
 * `real` itself where we do not replace it. */
void *hook_for_cuda(void *real);

enum hook_library { HOOK_LIBRARY_CUDA, HOOK_LIBRARY_NVML };

/* Has the dynamic linker find our hooks in the driver library's own symbol table: for look-ups that
 * no other door of ours sees (door_symbol.c). `open` false: only if the program has loaded it.
 * Done once; later calls change nothing. Any thread; takes the loader's lock. Where the table
 * cannot be written, says so once in the log. */
void hook_exchange_exports(enum hook_library library, bool open);

/* The hook exported as `name`, NULL where we have none. ret_real: the driver's own function (NULL
 * where its library lacks it or is not loaded). */
void *hook_by_name(const char *name, void **ret_real);

#endif
