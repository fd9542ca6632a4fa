/* SPDX-License-Identifier: Apache-2.0 */
/* The dynamic symbol table of one loaded object, for callbacks of dl_iterate_phdr. */
#ifndef VGPU_BASE_ELF_SYMBOLS_H
#define VGPU_BASE_ELF_SYMBOLS_H

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* Points into the object; valid while it stays loaded. */
struct elf_symbols {
    const ElfW(Sym) * table;
    const char *strings;
    const uint32_t *gnu_hash; /* NULL: the object has none */
    const uint32_t *hash;
};

/* Whether the address lies in one of the object's segments. */
bool elf_symbols_hold(const struct dl_phdr_info *info, const void *address);

/* False where the object has no dynamic symbol table. */
bool elf_symbols_read(const struct dl_phdr_info *info, struct elf_symbols *ret_symbols);

/* The defined function of that name; NULL where there is none. */
const ElfW(Sym) * elf_symbols_find(const struct elf_symbols *symbols, const char *name);

#endif
