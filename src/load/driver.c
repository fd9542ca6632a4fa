/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the driver's functions, and failing. */
#include "load/driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Of CUDA 11.3 and 12.0: what cuGetProcAddress and its second version came with. */
#define VERSION_FIRST 11030
#define VERSION_SECOND 12000

struct load_cuda load_cuda;
struct load_nvml load_nvml;
const char *load_program = "vgpu-load";
static void *cuda_library;
static atomic_uint returned;

static void say(const char *format, va_list arguments)
{
    char line[512];
    vsnprintf(line, sizeof(line), format, arguments);
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", load_program, line);
}

void load_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}

void load_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
    exit(LOAD_FAILED);
}

unsigned load_returned(void)
{
    return atomic_load_explicit(&returned, memory_order_relaxed);
}

void load_note_returned(void)
{
    atomic_store_explicit(&returned, load_returned() + 1, memory_order_relaxed);
}

void load_check(CUresult result, const char *call)
{
    const char *name = NULL;
    load_note_returned();
    if (result == CUDA_SUCCESS)
        return;
    if (!load_cuda.cuGetErrorName || load_cuda.cuGetErrorName(result, &name) != CUDA_SUCCESS ||
        !name)
        name = "unknown error";
    load_fail("%s: %s (%d)", call, name, (int)result);
}

void load_cuda_open(void)
{
    cuda_library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda_library)
        load_fail("no CUDA driver: %s", dlerror());
#define ROW(name) load_cuda.name = (__typeof__(name) *)dlsym(cuda_library, #name);
    LOAD_CUDA_NEEDED(ROW)
    LOAD_CUDA_WANTED(ROW)
#undef ROW
#define ROW(name)                                                                                  \
    if (!load_cuda.name)                                                                           \
        load_fail("this driver has no " #name);
    LOAD_CUDA_NEEDED(ROW)
#undef ROW
}

bool load_nvml_open(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    bool found = library != NULL;
    if (!library)
        return false;
#define ROW(name)                                                                                  \
    load_nvml.name = (__typeof__(name) *)dlsym(library, #name);                                    \
    found = found && load_nvml.name;
    LOAD_NVML(ROW)
#undef ROW
    return found && load_nvml.nvmlInit_v2() == NVML_SUCCESS;
}

static void *find_per_thread(const char *name, const char *exported)
{
    const cuuint64_t flags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    void *function = NULL;
    if (load_cuda.cuGetProcAddress_v2)
        result = load_cuda.cuGetProcAddress_v2(name, &function, VERSION_SECOND, flags, NULL);
    else if (load_cuda.cuGetProcAddress)
        result = load_cuda.cuGetProcAddress(name, &function, VERSION_FIRST, flags);
    if (result != CUDA_SUCCESS)
        function = NULL;
    if (!function)
        function = dlsym(cuda_library, exported);
    if (!function)
        load_fail("this driver has no %s", exported);
    return function;
}

void load_cuda_per_thread(void)
{
#define ROW(name) load_cuda.name = (__typeof__(name) *)find_per_thread(#name, #name "_ptsz");
    ROW(cuLaunchKernel)
    ROW(cuEventRecord)
    ROW(cuStreamSynchronize)
#undef ROW
}
