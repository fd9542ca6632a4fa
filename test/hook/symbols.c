/* SPDX-License-Identifier: Apache-2.0 */
/* dlsym and dlvsym: what the driver has and we replace is exchanged; all else is as without us. */
#include "abi/cuda.h"
#include "abi/nvml.h"
#include "bed.h"
#include "where.h"

static void *open_cuda(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    REQUIRE(library != NULL);
    return library;
}

static void *open_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    REQUIRE(library != NULL);
    return library;
}

static bool region_exists(void)
{
    return access(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), F_OK) == 0;
}

/* Absent, and dlerror says so. */
static bool is_absent(void *handle, const char *name)
{
    dlerror();
    bool absent = dlsym(handle, name) == NULL;
    const char *error = dlerror();
    if (!absent || !error || !strstr(error, name))
        dprintf(STDOUT_FILENO, "# %s: %s, dlerror: %s\n", name, absent ? "NULL" : "found",
            error ? error : "none");
    return absent && error && strstr(error, name);
}

BED_TEST("each hooked name that dlsym finds in the driver is our function", .sim = "cuda=13050")
{
    void *library = open_cuda();
    for (size_t i = 0; i < WHERE_COUNT(where_hooked_cuda); i++) {
        void *found = dlsym(library, where_hooked_cuda[i]);
        CHECK_STR(where_is(found), "libvgpu.so");
        CHECK_STR(where_name(found), where_hooked_cuda[i]);
    }
}

BED_TEST("each other name that dlsym finds in the driver is the driver's", .sim = "cuda=13050")
{
    void *library = open_cuda();
    for (size_t i = 0; i < WHERE_COUNT(where_cuda_entries); i++) {
        const char *name = where_cuda_entries[i];
        void *found = dlsym(library, name);
        if (!CHECK_STR(where_is(found), where_expected(name, "libcuda.so.1")) ||
            !CHECK_STR(where_name(found), name))
            dprintf(STDOUT_FILENO, "# asked for %s\n", name);
    }
}

/* By a driver that has each of them. */
BED_TEST("NVML's hooked names are ours, its others NVML's", .sim = "driver=590.44.01")
{
    void *library = open_nvml();
    for (size_t i = 0; i < WHERE_COUNT(where_hooked_nvml); i++)
        CHECK_STR(where_is(dlsym(library, where_hooked_nvml[i])), "libvgpu.so");
    for (size_t i = 0; i < WHERE_COUNT(where_called_nvml); i++)
        CHECK_STR(where_is(dlsym(library, where_called_nvml[i])), "libnvidia-ml.so.1");
    CHECK_STR(where_is(dlsym(library, "nvmlDeviceGetName")), "libnvidia-ml.so.1");
    CHECK(is_absent(library, "nvmlFoo"));
}

BED_TEST("dlvsym asked for a version that the driver does not have finds nothing")
{
    void *library = open_cuda();
    CHECK(dlvsym(library, "cuDriverGetVersion", "NO_VERSION") == NULL);
    CHECK(dlvsym(library, "cuMemAlloc_v2", "NO_VERSION") == NULL);
    CHECK(dlerror() != NULL);
}

BED_TEST("dlvsym of the C library tells versions apart")
{
#if defined(__x86_64__)
    void *old = dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.2.5");
    void *newer = dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_2.14");
    CHECK(old && newer && old != newer);
#endif
    dlerror();
    CHECK(dlvsym(RTLD_DEFAULT, "memcpy", "GLIBC_9.9") == NULL);
    CHECK(dlerror() != NULL);
}

BED_TEST("RTLD_DEFAULT finds our function once the driver is loaded for all")
{
    REQUIRE(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != NULL);
    CHECK_STR(where_is(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")), "libvgpu.so");
    CHECK_STR(where_is(dlsym(RTLD_DEFAULT, "cuDriverGetVersion")), "libcuda.so.1");
}

BED_TEST("RTLD_DEFAULT finds nothing of a driver that is not loaded")
{
    CHECK(is_absent(RTLD_DEFAULT, "cuDriverGetVersion"));
    CHECK(is_absent(RTLD_DEFAULT, "cuMemAlloc_v2"));
    CHECK(is_absent(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo"));
}

BED_TEST("a driver's name asked of another library is absent there")
{
    open_cuda();
    void *library = dlopen("libm.so.6", RTLD_NOW);
    REQUIRE(library != NULL);
    CHECK(is_absent(library, "cuMemAlloc_v2"));
    CHECK(is_absent(library, "nvmlDeviceGetMemoryInfo"));
}

BED_TEST("names that only look like the driver's start nothing", .limit = "1GiB")
{
    CHECK(is_absent(RTLD_DEFAULT, "curl_easy_init"));
    CHECK(is_absent(RTLD_DEFAULT, "custom"));
    CHECK(is_absent(RTLD_DEFAULT, "cu"));
    CHECK(is_absent(RTLD_DEFAULT, "nvmlFoo"));
    CHECK(is_absent(RTLD_DEFAULT, "nvml"));
    void *library = open_cuda();
    CHECK(is_absent(library, "cuFoo"));
    CHECK(dlsym(library, "cuMemAlloc_v2") != NULL);
    CHECK(!region_exists());
    CHECK_STR(bed_stderr(), "");
}

BED_TEST("functions of the C library are found as ever")
{
    void *library = dlopen("libc.so.6", RTLD_NOW);
    CHECK(dlsym(RTLD_DEFAULT, "qsort") == (void *)qsort);
    CHECK(dlsym(library, "qsort") == (void *)qsort);
    CHECK(dlsym(RTLD_NEXT, "qsort") == (void *)qsort);
    CHECK_STR(where_is(dlsym(library, "malloc")), "libc.so.6");
    CHECK(is_absent(RTLD_DEFAULT, "no_such_function"));
}

BED_TEST("what a driver of 2021 lacks stays absent", .sim = "driver=470")
{
    void *library = open_cuda();
    CHECK(is_absent(library, "cuGetProcAddress_v2"));
    CHECK(is_absent(library, "cuCtxCreate_v4"));
    CHECK(is_absent(library, "cuLaunchKernelEx"));
    CHECK(is_absent(library, "cuLibraryLoadData"));
    CHECK_STR(where_is(dlsym(library, "cuGetProcAddress")), "libvgpu.so");
    CHECK_STR(where_is(dlsym(library, "cuMemAlloc_v2")), "libvgpu.so");
    REQUIRE(dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) != NULL);
    CHECK(is_absent(RTLD_DEFAULT, "cuLaunchKernelEx"));
    CHECK(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL);
}

BED_TEST("a symbol asked for by NULL name does not reach us")
{
    /* glibc faults on it, with us and without: only the handles are odd here. */
    CHECK(is_absent(RTLD_DEFAULT, ""));
    CHECK(is_absent(RTLD_NEXT, "cuMemAllocFoo"));
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
