/* SPDX-License-Identifier: Apache-2.0 */
#include "node/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libnvidia-ml.so.1"

/* Below a driver's root, in the order in which distributions and the driver container use them. */
static const char *const directories[] = {"usr/lib64", "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu", "usr/lib", "lib64", "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu", "lib", "usr/local/nvidia/lib64"};

static void *open_below(const char *root, char *why, size_t size)
{
    for (size_t i = 0; *root && i < sizeof(directories) / sizeof(directories[0]); i++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof(path), "%s/%s/%s", root, directories[i], LIBRARY);
        if (length >= (int)sizeof(path) || access(path, F_OK) != 0)
            continue;
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
        snprintf(why, size, "%s", dlerror());
    }
    return NULL;
}

static void *open_library(const char *inside, const char *root, char *why, size_t size)
{
    void *library = open_below(inside, why, size);
    if (!library && strcmp(root, "/") != 0)
        library = open_below(root, why, size);
    if (!library)
        library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        library = open_below("/", why, size);
    return library;
}

int nvml_open(struct nvml *nvml, const char *inside, const char *root, struct error *error)
{
    char why[ERROR_TEXT_BYTES] = LIBRARY " is not there";
    *nvml = (struct nvml){.library = open_library(inside, root, why, sizeof(why))};
    if (!nvml->library)
        return error_set(error, ENOENT, "%s", why);
#define FIND(function) nvml->function = (__typeof__(function) *)dlsym(nvml->library, #function);
    NVML_FUNCTIONS(FIND)
#undef FIND
    nvmlReturn_t result = nvml_call(nvml, nvmlInit_v2);
    if (result == NVML_SUCCESS)
        return 0;
    error_set(error, EIO, "NVML does not start: %s", nvml_text(nvml, result));
    dlclose(nvml->library);
    *nvml = (struct nvml){0};
    return -EIO;
}

void nvml_close(struct nvml *nvml)
{
    if (!nvml->library)
        return;
    (void)nvml_call(nvml, nvmlShutdown);
    dlclose(nvml->library);
    *nvml = (struct nvml){0};
}

const char *nvml_text(const struct nvml *nvml, nvmlReturn_t result)
{
    if (result == NVML_ERROR_FUNCTION_NOT_FOUND)
        return "the driver's NVML lacks the function";
    const char *text = nvml->nvmlErrorString ? nvml->nvmlErrorString(result) : NULL;
    return text ? text : "unknown error";
}
