/* SPDX-License-Identifier: Apache-2.0 */
#include "node/store.h"

#include "net/file_read.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The directory of `path`, opened; made, with its parents, where it is missing. */
static int open_directory(const char *path)
{
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash || slash - path >= (ptrdiff_t)sizeof(directory))
        return -EINVAL;
    snprintf(directory, sizeof(directory), "%.*s", slash == path ? 1 : (int)(slash - path), path);
    for (char *at = directory + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        (void)mkdir(directory, 0755);
        *at = '/';
    }
    (void)mkdir(directory, 0755);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int write_all(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t done = write(fd, text, bytes);
        if (done < 0 && errno != EINTR)
            return -errno;
        if (done > 0) {
            text += done;
            bytes -= (size_t)done;
        }
    }
    return fsync(fd) ? -errno : 0;
}

static int replace(int directory, const char *name, const char *text)
{
    char temporary[NAME_MAX + 1];
    if (snprintf(temporary, sizeof(temporary), ".%s.new", name) >= (int)sizeof(temporary))
        return -ENAMETOOLONG;
    int fd =
        openat(directory, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    int failure = fd < 0 ? -errno : write_all(fd, text, strlen(text));
    if (fd >= 0)
        close(fd);
    if (!failure && renameat(directory, temporary, directory, name))
        failure = -errno;
    if (failure)
        unlinkat(directory, temporary, 0);
    else
        (void)fsync(directory);
    return failure;
}

int store_write(const char *path, const json_t *value, struct error *error)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS);
    const char *slash = strrchr(path, '/');
    int directory = text ? open_directory(path) : -ENOMEM, failure = directory < 0 ? directory : 0;
    if (!failure && !json_object_size(value)) {
        if (unlinkat(directory, slash + 1, 0) && errno != ENOENT)
            failure = -errno;
    } else if (!failure) {
        failure = replace(directory, slash + 1, text);
    }
    if (directory >= 0)
        close(directory);
    free(text);
    if (failure)
        return error_set(error, -failure, "cannot write %s: %s", path, strerror(-failure));
    return 0;
}

json_t *store_read(const char *path, size_t bytes_max, struct error *error)
{
    char *text;
    size_t bytes;
    struct file_stamp stamp;
    json_error_t problem;
    if (file_read(path, bytes_max, &text, &bytes, &stamp, error))
        return NULL;
    json_t *value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem);
    free(text);
    if (json_is_object(value))
        return value;
    if (value)
        error_set(error, EINVAL, "%s is not a JSON object", path);
    else
        error_set(error, EINVAL, "%s: line %d: %s", path, problem.line, problem.text);
    json_decref(value);
    return NULL;
}
