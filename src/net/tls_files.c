/* SPDX-License-Identifier: Apache-2.0 */
#include "net/tls_files.h"

#include "net/file_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct part {
    char *path;
    struct file_stamp stamp;
    int fd, before_fd; /* the memory file, and the one before it; -1: none */
    char fd_path[32];
};

struct tls_files {
    struct part ca, certificate, key;
};

/* A memory file with these bytes, or -errno. */
static int make_memory_file(const void *data, size_t bytes)
{
    int fd = memfd_create("tls", MFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (size_t done = 0; done < bytes;) {
        ssize_t wrote = write(fd, (const char *)data + done, bytes - done);
        if (wrote < 0) {
            int failure = errno;
            close(fd);
            return -failure;
        }
        done += (size_t)wrote;
    }
    return fd;
}

static int part_replace(struct part *part, const void *data, size_t bytes, struct error *error)
{
    int fd = make_memory_file(data, bytes);
    if (fd < 0)
        return error_set(error, -fd, "cannot make a memory file: %s", strerror(-fd));
    if (part->before_fd >= 0)
        close(part->before_fd);
    part->before_fd = part->fd;
    part->fd = fd;
    snprintf(part->fd_path, sizeof(part->fd_path), "/proc/self/fd/%d", fd);
    return 0;
}

static int part_read(struct part *part, struct error *error)
{
    char *data;
    size_t bytes;
    struct file_stamp stamp;
    int failure = file_read(part->path, TLS_FILE_BYTES_MAX, &data, &bytes, &stamp, error);
    if (failure)
        return failure;
    if (bytes)
        failure = part_replace(part, data, bytes, error);
    else
        failure = error_set(error, EINVAL, "%s is empty", part->path);
    explicit_bzero(data, bytes);
    free(data);
    if (!failure)
        part->stamp = stamp;
    return failure;
}

static int part_init(struct part *part, const struct tls_source *source, struct error *error)
{
    *part = (struct part){.fd = -1, .before_fd = -1};
    if (source && source->path) {
        part->path = strdup(source->path);
        if (!part->path)
            return error_set(error, ENOMEM, "no memory for a path");
        return part_read(part, error);
    }
    if (source && source->data)
        return part_replace(part, source->data, source->bytes, error);
    return 0;
}

static void part_finish(struct part *part)
{
    free(part->path);
    if (part->fd >= 0)
        close(part->fd);
    if (part->before_fd >= 0)
        close(part->before_fd);
}

static bool part_changed(const struct part *part)
{
    return part->path && file_stamp_differs(&part->stamp, part->path);
}

struct tls_files *tls_files_create(const struct tls_source *ca,
    const struct tls_source *certificate, const struct tls_source *key, struct error *error)
{
    struct tls_files *files = calloc(1, sizeof(*files));
    if (!files) {
        error_set(error, ENOMEM, "no memory for TLS files");
        return NULL;
    }
    /* All three, so that all may be finished. */
    int failure = part_init(&files->ca, ca, error);
    struct error *rest = failure ? NULL : error;
    failure |= part_init(&files->certificate, certificate, rest);
    rest = failure ? NULL : error;
    failure |= part_init(&files->key, key, rest);
    if (failure) {
        tls_files_destroy(files);
        return NULL;
    }
    return files;
}

void tls_files_destroy(struct tls_files *files)
{
    if (!files)
        return;
    part_finish(&files->ca);
    part_finish(&files->certificate);
    part_finish(&files->key);
    free(files);
}

void tls_files_refresh(struct tls_files *files)
{
    if (part_changed(&files->ca))
        (void)!part_read(&files->ca, NULL);
    /* A certificate without its key is of no use: both, or neither. */
    if (part_changed(&files->certificate) || part_changed(&files->key)) {
        if (!files->certificate.path || !part_read(&files->certificate, NULL)) {
            if (files->key.path)
                (void)!part_read(&files->key, NULL);
        }
    }
}

static const char *path_of(const struct part *part)
{
    return part->fd >= 0 ? part->fd_path : NULL;
}

const char *tls_files_ca(const struct tls_files *files)
{
    return path_of(&files->ca);
}

const char *tls_files_certificate(const struct tls_files *files)
{
    return path_of(&files->certificate);
}

const char *tls_files_key(const struct tls_files *files)
{
    return path_of(&files->key);
}
