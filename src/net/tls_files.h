/* SPDX-License-Identifier: Apache-2.0 */
/* CA bundle, certificate and key of a TLS client, from files that may be replaced while it runs or
 * from memory. They are handed to libcurl as paths of memory files: its GnuTLS variant (7.88) takes
 * paths only, keys of a kubeconfig stay off the disk, and as libcurl reuses a connection only for
 * the same paths, a request after a change makes a new connection. Needs /proc. One thread. */
#ifndef VGPU_NET_TLS_FILES_H
#define VGPU_NET_TLS_FILES_H

#include "net/error.h"

#include <stddef.h>

#define TLS_FILE_BYTES_MAX (1 << 20)

/* Either a path or bytes in memory (PEM); neither: none. All is copied. */
struct tls_source {
    const char *path;
    const void *data;
    size_t bytes;
};

struct tls_files;

/* Without a CA bundle the system's is used. Returns NULL with the error where a file cannot be
 * read. */
struct tls_files *tls_files_create(const struct tls_source *ca,
    const struct tls_source *certificate, const struct tls_source *key, struct error *error);
void tls_files_destroy(struct tls_files *files);

/* Reads again what has changed on disk (three stat calls where nothing has). A file that is missing
 * or empty just now counts as unchanged: it is being replaced. */
void tls_files_refresh(struct tls_files *files);

/* Paths for libcurl, NULL where there is none. Each stays readable until what it stands for has
 * changed twice. */
const char *tls_files_ca(const struct tls_files *files);
const char *tls_files_certificate(const struct tls_files *files);
const char *tls_files_key(const struct tls_files *files);

#endif
