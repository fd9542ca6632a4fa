/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded object's dynamic symbol table, read in place. */
#include "base/elf_symbols.h"

#include <string.h>

bool elf_symbols_hold(const struct dl_phdr_info *info, const void *address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && (uintptr_t)address >= start &&
            (uintptr_t)address < start + segment->p_memsz)
            return true;
    }
    return false;
}

/* glibc relocates the dynamic section's pointers, musl and the vDSO do not. */
static const void *dynamic_pointer(const struct dl_phdr_info *info, ElfW(Addr) value)
{
    return (const void *)(value < info->dlpi_addr ? value + info->dlpi_addr : value);
}

bool elf_symbols_read(const struct dl_phdr_info *info, struct elf_symbols *symbols)
{
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
    memset(symbols, 0, sizeof(*symbols));
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        const void *pointer = dynamic_pointer(info, dynamic->d_un.d_ptr);
        switch (dynamic->d_tag) {
        case DT_SYMTAB:
            symbols->table = pointer;
            break;
        case DT_STRTAB:
            symbols->strings = pointer;
            break;
        case DT_GNU_HASH:
            symbols->gnu_hash = pointer;
            break;
        case DT_HASH:
            symbols->hash = pointer;
            break;
        }
    }
    return symbols->table && symbols->strings;
}

static bool symbol_matches(const struct elf_symbols *symbols, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &symbols->table[index];
    unsigned type = ELF64_ST_TYPE(symbol->st_info);
    return symbol->st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_GNU_IFUNC) &&
           !strcmp(symbols->strings + symbol->st_name, name);
}

static uint32_t symbol_by_gnu_hash(const struct elf_symbols *symbols, const char *name)
{
    uint32_t hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    const uint32_t *header = symbols->gnu_hash;
    uint32_t bucket_count = header[0], first = header[1], bloom_words = header[2];
    const uint32_t *buckets =
        (const uint32_t *)((const char *)(header + 4) + bloom_words * sizeof(ElfW(Addr)));
    const uint32_t *chain = buckets + bucket_count;
    uint32_t index = bucket_count ? buckets[hash % bucket_count] : 0;
    if (index < first)
        return 0;
    for (;; index++) {
        uint32_t entry = chain[index - first];
        if ((entry | 1) == (hash | 1) && symbol_matches(symbols, index, name))
            return index;
        if (entry & 1)
            return 0;
    }
}

static uint32_t symbol_by_sysv_hash(const struct elf_symbols *symbols, const char *name)
{
    uint32_t hash = 0;
    for (const char *c = name; *c; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        hash = (hash ^ ((hash & 0xf0000000u) >> 24)) & 0x0fffffffu;
    }
    uint32_t bucket_count = symbols->hash[0];
    const uint32_t *buckets = symbols->hash + 2;
    const uint32_t *chain = buckets + bucket_count;
    for (uint32_t index = bucket_count ? buckets[hash % bucket_count] : 0; index;
         index = chain[index]) {
        if (symbol_matches(symbols, index, name))
            return index;
    }
    return 0;
}

const ElfW(Sym) * elf_symbols_find(const struct elf_symbols *symbols, const char *name)
{
    uint32_t index = symbols->gnu_hash ? symbol_by_gnu_hash(symbols, name)
                     : symbols->hash   ? symbol_by_sysv_hash(symbols, name)
                                       : 0;
    return index ? &symbols->table[index] : NULL;
}
