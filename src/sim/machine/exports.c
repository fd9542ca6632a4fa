/* SPDX-License-Identifier: Apache-2.0 */
/* The symbol table of the library that this is linked into, rewritten. */
#include "sim/machine/exports.h"

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* glibc relocates the dynamic section's pointers, musl does not. */
static uintptr_t address_of(ElfW(Addr) value)
{
    uintptr_t base = (uintptr_t)&__ehdr_start;
    return value < base ? value + base : value;
}

static uintptr_t dynamic(ElfW(Sxword) tag)
{
    for (const ElfW(Dyn) *entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == tag)
            return address_of(entry->d_un.d_ptr);
    }
    return 0;
}

/* Symbols that can be looked up are those from `first` on that the hash table has. */
static uint32_t symbol_end(const uint32_t *hash, uint32_t *ret_first)
{
    uint32_t bucket_count = hash[0], last = 0;
    const uint32_t *buckets = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / sizeof *hash);
    const uint32_t *chain = buckets + bucket_count;
    *ret_first = hash[1];
    for (uint32_t i = 0; i < bucket_count; i++)
        last = buckets[i] > last ? buckets[i] : last;
    if (last < hash[1])
        return hash[1];
    while (!(chain[last - hash[1]] & 1))
        last++;
    return last + 1;
}

void sim_exports_hide(bool (*is_absent)(const char *name))
{
    const uint32_t *hash = (const uint32_t *)dynamic(DT_GNU_HASH); // NOLINT: the loader's table
    ElfW(Sym) *symbols = (ElfW(Sym) *)dynamic(DT_SYMTAB);          // NOLINT
    const char *strings = (const char *)dynamic(DT_STRTAB);        // NOLINT
    uint32_t first;
    if (!hash || !symbols || !strings)
        return;
    uint32_t end = symbol_end(hash, &first);
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)&symbols[first] / page * page;
    uintptr_t bytes = (uintptr_t)&symbols[end] - from;
    if (mprotect((void *)from, bytes, PROT_READ | PROT_WRITE) != 0) // NOLINT
        return;
    for (uint32_t i = first; i < end; i++) {
        if (!is_absent(strings + symbols[i].st_name))
            continue;
        symbols[i].st_shndx = SHN_UNDEF;
        symbols[i].st_value = 0;
    }
    (void)mprotect((void *)from, bytes, PROT_READ); // NOLINT
}
