/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row of a layout table: what the compiler says of a type, a field or a value.
 */
#ifndef VGPU_TEST_ABI_CUDA_LAYOUT_H
#define VGPU_TEST_ABI_CUDA_LAYOUT_H

#include <stddef.h>

struct layout_row {
    const char *name;
    size_t size;      /* of the type or the field; 0 for a value */
    size_t offset;    /* of the field */
    long long number; /* the value */
};

extern const struct layout_row layout_ours[];
extern const size_t layout_ours_count;
extern const struct layout_row layout_toolkit[];
extern const size_t layout_toolkit_count;

/* What a table is made of: include abi_cuda_layout.def where the rows go. */
#define TYPE(type) {#type, sizeof(type), 0, 0},
#define FIELD(type, field) {#type "." #field, sizeof(((type *)0)->field), offsetof(type, field), 0},
#define VALUE(value) {#value, 0, 0, (long long)(value)},

#endif
