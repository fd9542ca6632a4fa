/* SPDX-License-Identifier: Apache-2.0 */
/* The child of vgpu doctor: a small CUDA program. Each line is written at once, so that what it met
 * before a call that never returns is known. */
#include "doctor/child.h"

#include "abi/cuda.h"
#include "abi/nvml.h"
#include "base/text.h"
#include "vgpu/report.h"

#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REPORT_BYTES (64 << 10)
#define DEVICES 64
/* The library compares its ledger with the driver's figure at most once a second. */
#define AUDIT_WAIT_MS 1100
#define PIECE_BYTES (4u << 20)

static const char *const kernels[] = {
    ".version 5.0\n.target sm_50\n.address_size 64\n.visible .entry probe()\n{\n    ret;\n}\n",
    ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry probe()\n{\n    ret;\n}\n",
};

#define CUDA_ROWS(ROW)                                                                             \
    ROW(cuInit)                                                                                    \
    ROW(cuDriverGetVersion)                                                                        \
    ROW(cuDeviceGetCount)                                                                          \
    ROW(cuDeviceGet)                                                                               \
    ROW(cuDeviceGetName)                                                                           \
    ROW(cuDeviceGetUuid)                                                                           \
    ROW(cuDeviceGetUuid_v2)                                                                        \
    ROW(cuDevicePrimaryCtxRetain)                                                                  \
    ROW(cuCtxSetCurrent)                                                                           \
    ROW(cuCtxSynchronize)                                                                          \
    ROW(cuModuleLoadData)                                                                          \
    ROW(cuModuleGetFunction)                                                                       \
    ROW(cuLaunchKernel)                                                                            \
    ROW(cuMemAlloc_v2)                                                                             \
    ROW(cuMemFree_v2)                                                                              \
    ROW(cuGetErrorName)                                                                            \
    ROW(cuGetProcAddress)                                                                          \
    ROW(cuGetProcAddress_v2)

#define ROW(name) __typeof__(name) *name;
static struct {
    void *library;
    vgpu_report_function *report;
    CUDA_ROWS(ROW)
} driver;
#undef ROW

static void say(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(const char *name, const char *format, ...)
{
    char value[1024], clean[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof(value), format, arguments);
    va_end(arguments);
    text_escape(clean, sizeof(clean), value, strlen(value));
    printf("%s %s\n", name, clean);
    fflush(stdout);
}

static void say_of(int ordinal, const char *name, const char *value)
{
    char whole[64];
    snprintf(whole, sizeof(whole), "cuda.%d.%s", ordinal, name);
    say(whole, "%s", value);
}

/* True where the call succeeded; else the error's name is said. */
static bool went(CUresult result, int ordinal, const char *name)
{
    const char *word = NULL;
    if (result == CUDA_SUCCESS)
        return true;
    if (!driver.cuGetErrorName || driver.cuGetErrorName(result, &word) != CUDA_SUCCESS || !word)
        word = "an unknown error";
    say_of(ordinal, name, word);
    return false;
}

/* ---- library and doors ---- */

static bool is_of_library(void *function)
{
    Dl_info function_info, library_info;
    return function && dladdr(function, &function_info) &&
           dladdr((void *)driver.report, &library_info) &&
           function_info.dli_fbase == library_info.dli_fbase;
}

static const char *yes(bool is)
{
    return is ? "yes" : "no";
}

static bool find_library(void)
{
    Dl_info info;
    driver.report = (vgpu_report_function *)dlsym(RTLD_DEFAULT, "vgpu_report");
    if (!driver.report)
        return false;
    if (dladdr((void *)driver.report, &info))
        say("library.path", "%s", info.dli_fname);
    return true;
}

static void say_procaddress(void)
{
    void *function = NULL;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    if (driver.cuGetProcAddress_v2)
        result = driver.cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, NULL);
    else if (driver.cuGetProcAddress)
        result = driver.cuGetProcAddress("cuMemAlloc", &function, 11030, 0);
    if (result != CUDA_SUCCESS)
        say("door.procaddress", "absent");
    else
        say("door.procaddress", "%s", yes(is_of_library(function)));
}

static void say_doors(void)
{
    say("door.dlsym", "%s", yes(is_of_library((void *)driver.cuMemAlloc_v2)));
    /* The driver's functions have no version, so this one asks where dlvsym itself is. */
    say("door.dlvsym", "%s", yes(is_of_library(dlsym(RTLD_DEFAULT, "dlvsym"))));
    say_procaddress();
}

/* ---- driver ---- */

static bool open_driver(void)
{
    driver.library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver.library) {
        say("driver.error", "%s", dlerror());
        return false;
    }
#define ROW(name) driver.name = (__typeof__(name) *)dlsym(driver.library, #name);
    CUDA_ROWS(ROW)
#undef ROW
    return driver.cuInit && driver.cuLaunchKernel;
}

static void say_versions(void)
{
    int version = 0;
    char text[80];
    if (driver.cuDriverGetVersion && driver.cuDriverGetVersion(&version) == CUDA_SUCCESS)
        say("driver.cuda", "%d.%d", version / 1000, version % 1000 / 10);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library)
        return;
    __typeof__(nvmlInit_v2) *init = (__typeof__(init))dlsym(library, "nvmlInit_v2");
    __typeof__(nvmlSystemGetDriverVersion) *ask =
        (__typeof__(ask))dlsym(library, "nvmlSystemGetDriverVersion");
    if (init && ask && init() == NVML_SUCCESS && ask(text, sizeof(text)) == NVML_SUCCESS)
        say("driver.version", "%s", text);
}

static void say_identity(int ordinal, CUdevice device)
{
    char text[128];
    CUuuid uuid, instance;
    const char *kind = "GPU";
    const unsigned char *b = (const unsigned char *)uuid.bytes;
    if (driver.cuDeviceGetName(text, sizeof(text), device) == CUDA_SUCCESS)
        say_of(ordinal, "name", text);
    if (!driver.cuDeviceGetUuid || driver.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS)
        return;
    /* Of a MIG compute instance the second version gives its own, as the library counts it. */
    if (driver.cuDeviceGetUuid_v2 && driver.cuDeviceGetUuid_v2(&instance, device) == CUDA_SUCCESS &&
        memcmp(&instance, &uuid, sizeof(uuid)) != 0) {
        uuid = instance;
        kind = "MIG";
    }
    snprintf(text, sizeof(text),
        "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", kind, b[0], b[1],
        b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    say_of(ordinal, "uuid", text);
}

/* ---- work ---- */

static CUcontext contexts[DEVICES];

static void make_context(int ordinal)
{
    CUdevice device;
    say("step", "context on device %d", ordinal);
    if (!went(driver.cuDeviceGet(&device, ordinal), ordinal, "context"))
        return;
    say_identity(ordinal, device);
    if (!went(driver.cuDevicePrimaryCtxRetain(&contexts[ordinal], device), ordinal, "context"))
        contexts[ordinal] = NULL;
    else
        say_of(ordinal, "context", "ok");
}

/* An allocation that the library compares the sums at. */
static void allocate(int ordinal)
{
    CUdeviceptr pointer;
    say("step", "memory on device %d", ordinal);
    if (!contexts[ordinal] || !went(driver.cuCtxSetCurrent(contexts[ordinal]), ordinal, "memory") ||
        !went(driver.cuMemAlloc_v2(&pointer, PIECE_BYTES), ordinal, "memory"))
        return;
    say_of(ordinal, "memory", "ok");
    (void)driver.cuMemFree_v2(pointer);
}

static CUresult load_kernel(CUfunction *ret_function)
{
    CUresult result = CUDA_ERROR_INVALID_PTX;
    for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
        CUmodule module;
        result = driver.cuModuleLoadData(&module, kernels[i]);
        if (result == CUDA_SUCCESS)
            return driver.cuModuleGetFunction(ret_function, module, "probe");
    }
    return result;
}

static void launch(int ordinal)
{
    CUfunction function;
    say("step", "launch on device %d", ordinal);
    if (!contexts[ordinal] || !went(driver.cuCtxSetCurrent(contexts[ordinal]), ordinal, "launch") ||
        !went(load_kernel(&function), ordinal, "launch") ||
        !went(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), ordinal,
            "launch") ||
        !went(driver.cuCtxSynchronize(), ordinal, "launch"))
        return;
    say_of(ordinal, "launch", "ok");
}

/* ---- in order ---- */

static char report_text[REPORT_BYTES];

static void report(unsigned flags)
{
    say("step", "report");
    (void)driver.report(report_text, sizeof(report_text), flags);
    fputs(report_text, stdout);
    fflush(stdout);
}

static void rest_ms(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

static bool says(const char *line)
{
    return strstr(report_text, line) != NULL;
}

static void work(int first, int bound)
{
    for (int ordinal = first; ordinal < bound; ordinal++)
        make_context(ordinal);
    report(0);
    if (says("\nledger.used rm\n"))
        rest_ms(AUDIT_WAIT_MS);
    for (int ordinal = first; ordinal < bound; ordinal++)
        allocate(ordinal);
    report(VGPU_REPORT_TEST_GATE);
    /* It would wait for the resume. */
    if (says("\npaused yes\n") || says("\nheld yes\n"))
        return;
    for (int ordinal = first; ordinal < bound; ordinal++)
        launch(ordinal);
}

int doctor_probe(int device)
{
    int count = 0;
    say("glibc", "%s", gnu_get_libc_version());
    if (!find_library())
        return 0;
    report(0);
    say("step", "opening the driver");
    if (!open_driver())
        return 0;
    say("step", "cuInit");
    CUresult result = driver.cuInit(0);
    if (result != CUDA_SUCCESS) {
        const char *word = NULL;
        if (!driver.cuGetErrorName || driver.cuGetErrorName(result, &word) != CUDA_SUCCESS)
            word = NULL;
        say("driver.error", "cuInit answers %s (%d)", word ? word : "an error", (int)result);
        return 0;
    }
    say_versions();
    say_doors();
    if (driver.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        count = 0;
    count = count < DEVICES ? count : DEVICES;
    say("cuda.devices", "%d", count);
    int first = device < 0 ? 0 : device, bound = device < 0 ? count : device + 1;
    if (bound <= count)
        work(first, bound);
    say("step", "end");
    return 0;
}
