/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzz targets share. A target is one function over some bytes; libFuzzer calls it with
 * bytes of its own making (scripts/fuzz), fuzz/main.c with the cases that were kept. */
#ifndef VGPU_TEST_FUZZ_H
#define VGPU_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What holds whatever the input is. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(STDOUT_FILENO, "# %s:%d: %s is false\n", __FILE__, __LINE__, #condition);      \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* The bytes that are left; nought follows their end. */
struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

static inline uint64_t fuzz_number(struct fuzz_input *input, unsigned bytes)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < bytes && input->left; i++, input->at++, input->left--)
        number |= (uint64_t)*input->at << 8 * i;
    return number;
}

static inline unsigned fuzz_byte(struct fuzz_input *input)
{
    return (unsigned)fuzz_number(input, 1);
}

/* A size as a program may ask for it: one byte chooses its magnitude. */
static inline uint64_t fuzz_size(struct fuzz_input *input)
{
    unsigned shift = fuzz_byte(input);
    return shift < 64 ? fuzz_number(input, 1) << shift : fuzz_number(input, 8);
}

/* A copy that ends exactly where the bytes do, so that reading past them is seen. */
static inline void *fuzz_copy(const void *bytes, size_t size)
{
    void *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    memcpy(copy, bytes, size);
    return copy;
}

/* The bytes as a terminated text of its own. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

#endif
