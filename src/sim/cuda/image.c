/* SPDX-License-Identifier: Apache-2.0 */
/* Module images. Machine code cannot be run here; uncompressed PTX in a fat binary can. */
#include "sim/cuda/image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAT_WRAPPER_MAGIC 0x466243b1u
#define FAT_MAGIC 0xba55ed50u
#define FAT_KIND_PTX 1

/* What __cudaRegisterFatBinary and cuModuleLoadFatBinary are given. */
struct fat_wrapper {
    uint32_t magic;
    uint32_t version;
    const void *data;
    const void *unused;
};

struct fat_header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t bytes; /* of all entries */
};

/* The part of an entry's header that is needed; header_bytes says how long it is. */
struct fat_entry {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes;
    uint32_t options_offset;
    uint16_t minor;
    uint16_t major;
    uint32_t architecture;
    uint32_t name_offset;
    uint32_t name_bytes;
    uint64_t flags;
    uint64_t zero;
    uint64_t raw_bytes; /* 0: not compressed */
};

static CUresult text_read(const struct device *device, const char *text, struct ptx *ret_ptx)
{
    const struct sim_model *model = &device->facts->model;
    struct ptx ptx;
    int rc = ptx_parse(text, &ptx);

    if (rc != 0)
        return rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
    if (ptx.target > model->compute_major * 10 + model->compute_minor) {
        ptx_finish(&ptx);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    *ret_ptx = ptx;
    return CUDA_SUCCESS;
}

static CUresult fat_read(const struct device *device, const char *image, struct ptx *ret_ptx)
{
    const struct fat_header *header = (const void *)image;
    const char *at = image + header->header_bytes;
    const char *end = at + header->bytes;

    while (at + sizeof(struct fat_entry) <= end) {
        const struct fat_entry *entry = (const void *)at;

        if (entry->kind == FAT_KIND_PTX && !entry->raw_bytes && !entry->compressed_bytes) {
            char *text = strndup(at + entry->header_bytes, entry->bytes);
            CUresult r = text ? text_read(device, text, ret_ptx) : CUDA_ERROR_OUT_OF_MEMORY;

            free(text);
            if (r != CUDA_ERROR_NO_BINARY_FOR_GPU)
                return r;
        }
        at += entry->header_bytes + entry->bytes;
    }
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult image_read(const struct device *device, const void *image, struct ptx *ret_ptx)
{
    uint32_t magic;

    memcpy(&magic, image, sizeof magic);
    if (magic == FAT_WRAPPER_MAGIC) {
        image = ((const struct fat_wrapper *)image)->data;
        memcpy(&magic, image, sizeof magic);
    }
    if (magic == FAT_MAGIC)
        return fat_read(device, image, ret_ptx);
    if (memcmp(&magic, "\177ELF", sizeof magic) == 0)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    /* PTX begins with a directive, a comment or white space. */
    if (!strchr("./ \t\r\n", *(const char *)image) || !*(const char *)image)
        return CUDA_ERROR_INVALID_IMAGE;
    return text_read(device, image, ret_ptx);
}

CUresult image_load(const char *path, char **ret_image)
{
    FILE *file = path ? fopen(path, "re") : NULL;
    char *image = NULL;
    size_t length = 0;
    size_t got;

    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    do {
        char *longer = realloc(image, length + 65536 + 1);

        if (!longer) {
            free(image);
            fclose(file);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        image = longer;
        got = fread(image + length, 1, 65536, file);
        length += got;
    } while (got == 65536);
    fclose(file);
    memset(image + length, 0, 1);
    if (length < 4) {
        free(image);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *ret_image = image;
    return CUDA_SUCCESS;
}
