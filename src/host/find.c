/* SPDX-License-Identifier: Apache-2.0 */
/* The search path. What the field's systems use, by their sources: HAMi's device plugin mounts
 * <HOOK_PATH>/vgpu/containers/<pod's uid>_<container> (HOOK_PATH is /usr/local) at /usr/local/vgpu,
 * and names a file <uuid>.cache in it; Volcano's has /tmp/vgpu in both places, its newer ones
 * <HOOK_PATH>/containers; HAMi-core without either uses /tmp/cudevshr.cache. */
#include "host/find.h"

#include "config/config.h"
#include "host/choose.h"
#include "host/glob.h"
#include "region/region_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const default_places[] = {
    REGION_PINNED_PATH,
    "/tmp/cudevshr.cache*",
    "/tmp/vgpu-run-*/region",
    "/usr/local/vgpu/containers/*/*.cache", /* HAMi, on the host */
    "/usr/local/vgpu/grants/*/account",     /* vgpu-device-plugin, the same files */
    "/usr/local/vgpu/*.cache",              /* and in the container */
    "/tmp/vgpu/containers/*/*.cache",       /* Volcano, likewise */
    "/tmp/vgpu/*.cache",
    "/etc/vgpu-manager/*/*.cache", /* vgpu-controller's directories */
    "/etc/vgpu-manager/*.cache",
    "/var/run/vgpu/*/*.cache",
    "/var/run/vgpu/*.cache",
};

static int add(struct finds *finds, const char *path)
{
    for (size_t i = 0; i < finds->count; i++) {
        if (!strcmp(finds->paths[i], path))
            return 0;
    }
    if (finds->count == finds->room) {
        size_t room = finds->room ? 2 * finds->room : 64;
        char **paths = realloc(finds->paths, room * sizeof(*paths));
        if (!paths)
            return -ENOMEM;
        finds->paths = paths;
        finds->room = room;
    }
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    finds->paths[finds->count++] = copy;
    return 0;
}

/* What cannot be read is passed over: no container of it could be shown. */
static int add_pattern(struct finds *finds, const char *pattern)
{
    glob_t found;
    int status = glob(pattern, GLOB_NOSORT, NULL, &found);
    if (status)
        return status == GLOB_NOSPACE ? -ENOMEM : 0;
    int error = 0;
    for (size_t i = 0; i < found.gl_pathc && !error; i++)
        error = add(finds, found.gl_pathv[i]);
    globfree(&found);
    return error;
}

static int add_own(struct finds *finds)
{
    struct config config;
    char path[PATH_MAX + 16];
    choose_config(&config);
    return region_file_path(&config, path, sizeof(path)) == 0 ? add(finds, path) : 0;
}

static int add_defaults(struct finds *finds)
{
    int error = add_own(finds);
    for (size_t i = 0; i < sizeof(default_places) / sizeof(default_places[0]) && !error; i++)
        error = add_pattern(finds, default_places[i]);
    finds->processes = true;
    return error;
}

/* A directory's name may hold what means something in a pattern. */
static int add_directory(struct finds *finds, const char *directory)
{
    const size_t most = 2ul * PATH_MAX;
    char pattern[2 * PATH_MAX + 4];
    size_t length = 0;
    for (const char *c = directory; *c && length < most; c++) {
        if (strchr("*?[]\\", *c))
            pattern[length++] = '\\';
        pattern[length++] = *c;
    }
    snprintf(pattern + length, sizeof(pattern) - length, "/*");
    return add_pattern(finds, pattern);
}

static int add_item(struct finds *finds, const char *item)
{
    struct stat status;
    if (!*item)
        return add_defaults(finds);
    if (lstat(item, &status) != 0)
        return add_pattern(finds, item);
    return S_ISDIR(status.st_mode) ? add_directory(finds, item) : add(finds, item);
}

int find_regions(const char *search, struct finds *ret_finds)
{
    *ret_finds = (struct finds){0};
    if (!search)
        search = getenv(FIND_VARIABLE);
    char *list = strdup(search ? search : ""), *rest = list;
    int error = list ? 0 : -ENOMEM;
    for (char *item; !error && (item = strsep(&rest, ":")) != NULL;)
        error = add_item(ret_finds, item);
    free(list);
    if (error)
        find_free(ret_finds);
    return error;
}

void find_free(struct finds *finds)
{
    for (size_t i = 0; i < finds->count; i++)
        free(finds->paths[i]);
    free(finds->paths);
    *finds = (struct finds){0};
}
