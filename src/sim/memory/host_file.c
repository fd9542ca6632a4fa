/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create, seals */
#endif
#include "sim/memory/host_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL)
#define MAGIC 0x74736f486d695356ull

struct trailer {
    uint64_t magic;
    uint64_t bytes;
    CUmemAllocationProp props;
};

#define TRAILER_BYTES 4096
_Static_assert(sizeof(struct trailer) <= TRAILER_BYTES, "a page");

int host_file_create(uint64_t bytes, const CUmemAllocationProp *props)
{
    struct trailer trailer = {MAGIC, bytes, *props};
    int fd = memfd_create("vgpu-sim-host", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -1;
    trailer.props.win32HandleMetaData = NULL;
    if (ftruncate(fd, (off_t)(bytes + TRAILER_BYTES)) != 0 ||
        pwrite(fd, &trailer, sizeof trailer, (off_t)bytes) != (ssize_t)sizeof trailer ||
        fcntl(fd, F_ADD_SEALS, SEALS) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

bool host_file_read(int fd, uint64_t *ret_bytes, CUmemAllocationProp *ret_props)
{
    struct trailer trailer;
    struct stat status;

    if (fcntl(fd, F_GET_SEALS) != SEALS || fstat(fd, &status) != 0 ||
        status.st_size <= TRAILER_BYTES ||
        pread(fd, &trailer, sizeof trailer, status.st_size - TRAILER_BYTES) !=
            (ssize_t)sizeof trailer ||
        trailer.magic != MAGIC || trailer.bytes + TRAILER_BYTES != (uint64_t)status.st_size)
        return false;
    *ret_bytes = trailer.bytes;
    *ret_props = trailer.props;
    return true;
}

char *host_file_map(int fd, uint64_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

    return pages == MAP_FAILED ? NULL : pages;
}
