/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of our own, in pages: the program's heap is not ours to use. */
#ifndef VGPU_BASE_PAGES_H
#define VGPU_BASE_PAGES_H

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

/* Zeroed pages, or NULL where the system has none; munmap frees them. errno is kept. */
static inline void *pages_map(size_t bytes)
{
    int errno_kept = errno;
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = errno_kept;
    return pages == MAP_FAILED ? NULL : pages;
}

#endif
