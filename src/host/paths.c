/* SPDX-License-Identifier: Apache-2.0 */
/* Looks beside the running program first, so that a build can be used where it lies. */
#include "host/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int path_find(const char *name, char *buffer, size_t size)
{
    static const char *const places[] = {"", "../lib/", "../lib/vgpu/",
        "../" VGPU_LIBRARY_DIRECTORY "/", "../" VGPU_LIBRARY_DIRECTORY "/vgpu/"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length <= 0)
        return -ENOENT;
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        int written = snprintf(buffer, size, "%s/%s%s", self, places[i], name);
        if (written > 0 && (size_t)written < size && access(buffer, R_OK) == 0)
            return 0;
    }
    return -ENOENT;
}
