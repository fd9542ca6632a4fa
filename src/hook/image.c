/* SPDX-License-Identifier: Apache-2.0 */
/* PTX declarations and cubin sections. */
#include "hook/image.h"

#include "base/own_memory.h"
#include "base/saturating.h"

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define SECTIONS_AT_ONCE 16 /* 1 KiB of stack */

/* Its size is not told: it may end anywhere. */
static uint64_t cubin_bytes(const void *image)
{
    Elf64_Ehdr header;
    Elf64_Shdr sections[SECTIONS_AT_ONCE];
    uint64_t bytes = 0;
    if (!own_memory_read((uintptr_t)image, &header, sizeof(header)) ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr))
        return 0;
    uintptr_t at = (uintptr_t)image + header.e_shoff;
    for (unsigned left = header.e_shnum; left;) {
        unsigned count = left < SECTIONS_AT_ONCE ? left : SECTIONS_AT_ONCE;
        if (!own_memory_read(at, sections, count * sizeof(sections[0])))
            return 0;
        for (unsigned i = 0; i < count; i++) {
            if (sections[i].sh_flags & SHF_ALLOC)
                bytes = saturating_sum(bytes, sections[i].sh_size);
        }
        at += count * sizeof(sections[0]);
        left -= count;
    }
    return bytes;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Decimal; *text moves behind it. Saturates. */
static uint64_t read_number(const char **text)
{
    uint64_t number = 0;
    for (; is_digit(**text); (*text)++) {
        uint64_t digit = (uint64_t)(**text - '0');
        number = number > (UINT64_MAX - digit) / 10 ? UINT64_MAX : number * 10 + digit;
    }
    return number;
}

/* From behind ".global" or ".const" to its ';', '=' or '{': the element's width is the number
 * behind a type's letter (.b8, .u32, .f64), the rest are dimensions in brackets. */
static uint64_t declaration_bytes(const char *at)
{
    uint64_t element_bytes = 0, elements = 1;
    for (; *at && *at != ';' && *at != '=' && *at != '{'; at++) {
        if (*at == '.' && at[1] && strchr("busf", at[1]) && is_digit(at[2])) {
            at += 2;
            element_bytes = read_number(&at) / 8;
            at--;
        } else if (*at == '[') {
            at++;
            elements = saturating_product(elements, read_number(&at));
            at--; /* the loop steps on what ended the number, also on the text's end */
        }
    }
    return saturating_product(element_bytes, elements);
}

/* A state space begins a declaration where a directive may stand; ld.global and the like do not. */
static uint64_t ptx_bytes(const char *text)
{
    static const char *const spaces[] = {".global", ".const"};
    uint64_t bytes = 0;
    bool boundary = true;
    for (const char *at = text; *at; at++) {
        for (size_t i = 0; boundary && i < sizeof(spaces) / sizeof(spaces[0]); i++) {
            size_t length = strlen(spaces[i]);
            if (!strncmp(at, spaces[i], length) && strchr(" \t\n.", at[length]))
                bytes = saturating_sum(bytes, declaration_bytes(at + length));
        }
        boundary = *at == ' ' || *at == '\t' || *at == '\n' || *at == ';' || *at == '}';
    }
    return bytes;
}

/* PTX begins with white space, a comment or its .version directive. */
static bool is_text(const char *image)
{
    return *image && strchr(" \t\r\n/.", *image);
}

uint64_t image_device_bytes(const void *image)
{
    if (!image)
        return 0;
    if (!strncmp(image, ELFMAG, SELFMAG)) /* stops at a short text's end */
        return cubin_bytes(image);
    return is_text(image) ? ptx_bytes(image) : 0;
}
