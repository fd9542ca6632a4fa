/* SPDX-License-Identifier: Apache-2.0 */
#include "collect/collect_grant.h"

#include "region/grant_write.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define ACCOUNT "/account"
#define LIMITS "limits.d"

/* The path without its last `parts` parts; 0: it has fewer. */
static size_t length_without(const char *path, unsigned parts)
{
    size_t length = strlen(path);
    for (; parts; parts--) {
        while (length && path[length - 1] != '/')
            length--;
        if (!length)
            return 0;
        length--;
    }
    return length;
}

static bool ends_in(const char *path, size_t length, const char *end)
{
    size_t bytes = strlen(end);
    return length >= bytes && !memcmp(path + length - bytes, end, bytes);
}

static bool is_account(int grants, const char *id, const struct stat *status)
{
    char name[NAME_MAX + sizeof(ACCOUNT)];
    struct stat other;
    snprintf(name, sizeof(name), "%s" ACCOUNT, id);
    return fstatat(grants, name, &other, AT_SYMLINK_NOFOLLOW) == 0 &&
           other.st_ino == status->st_ino && other.st_dev == status->st_dev;
}

/* Among the grants beside containers/, by the account that is the file. */
static bool find_beside(
    const char *path, size_t base, const struct stat *status, char *directory, size_t size)
{
    char grants[PATH_MAX];
    int length = snprintf(grants, sizeof(grants), "%.*s/grants", (int)base, path);
    DIR *list = length < (int)sizeof(grants) ? opendir(grants) : NULL;
    bool found = false;
    for (struct dirent *item; list && !found && (item = readdir(list)) != NULL;) {
        found = item->d_name[0] != '.' && is_account(dirfd(list), item->d_name, status);
        if (found)
            found = snprintf(directory, size, "%s/%s/" LIMITS, grants, item->d_name) < (int)size;
    }
    if (list)
        closedir(list);
    return found;
}

static bool find(const char *path, const struct stat *status, char *directory, size_t size)
{
    size_t above = length_without(path, 2), base = length_without(path, 3);
    if (status->st_nlink < 2 && !ends_in(path, strlen(path), ACCOUNT))
        return false; /* the plugin's have two names, until the container deletes one */
    if (ends_in(path, strlen(path), ACCOUNT) && ends_in(path, above, "/grants"))
        return snprintf(directory, size, "%.*s/" LIMITS, (int)length_without(path, 1), path) <
               (int)size;
    return ends_in(path, above, "/containers") && find_beside(path, base, status, directory, size);
}

static void copy_text(char *to, const char *from, size_t bytes)
{
    memcpy(to, from, bytes);
    to[bytes - 1] = '\0';
}

void collect_grant(
    const char *path, const struct stat *status, struct collected_container *container)
{
    char directory[PATH_MAX];
    struct vgpu_grant grant;
    if (!find(path, status, directory, sizeof(directory)) ||
        grant_write_read(directory, &grant) != 0)
        return;
    container->lifted = grant.lifted != 0;
    if (!grant.pod_name[0] && !grant.container_name[0])
        return;
    copy_text(container->pod_name, grant.pod_name, sizeof(container->pod_name));
    copy_text(container->pod_namespace, grant.pod_namespace, sizeof(container->pod_namespace));
    copy_text(container->pod_uid, grant.pod_uid, sizeof(container->pod_uid));
    copy_text(container->container_name, grant.container_name, sizeof(container->container_name));
}
