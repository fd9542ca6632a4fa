/* SPDX-License-Identifier: Apache-2.0 */
/* Writes into a loaded object's dynamic symbol table. */
#include "hook/door/elf_exchange.h"

#include "base/atomic.h"
#include "base/elf_symbols.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

struct work {
    const void *inside;
    const struct elf_exchange *rows;
    size_t count;
    int result;
};

/* The pages that hold the symbols to be changed; from == to: none. */
struct pages {
    uintptr_t from, to;
    int protection; /* what the segment's header asks for */
};

/* NULL where the row's symbol is not what it was looked up as: absent, or exchanged already. */
static ElfW(Sym) * symbol_of(const struct dl_phdr_info *info, const struct elf_symbols *symbols,
                       const struct elf_exchange *row)
{
    const void *from = load_relaxed(row->from);
    const ElfW(Sym) *symbol = from ? elf_symbols_find(symbols, row->name) : NULL;
    if (!symbol || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC ||
        info->dlpi_addr + symbol->st_value != (uintptr_t)from)
        return NULL;
    return (ElfW(Sym) *)(uintptr_t)symbol;
}

static int segment_protection(const struct dl_phdr_info *info, uintptr_t address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && address >= start && address - start < segment->p_memsz)
            return (segment->p_flags & PF_R ? PROT_READ : 0) |
                   (segment->p_flags & PF_W ? PROT_WRITE : 0) |
                   (segment->p_flags & PF_X ? PROT_EXEC : 0);
    }
    return PROT_READ;
}

static struct pages pages_of(
    const struct dl_phdr_info *info, const struct elf_symbols *symbols, const struct work *work)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    struct pages pages = {UINTPTR_MAX, 0, PROT_READ};
    for (size_t i = 0; i < work->count; i++) {
        uintptr_t symbol = (uintptr_t)symbol_of(info, symbols, &work->rows[i]);
        if (symbol && symbol < pages.from)
            pages.from = symbol;
        if (symbol && symbol + sizeof(ElfW(Sym)) > pages.to)
            pages.to = symbol + sizeof(ElfW(Sym));
    }
    if (!pages.to)
        return (struct pages){0, 0, PROT_READ};
    pages.protection = segment_protection(info, pages.from);
    pages.from = pages.from / page * page;
    pages.to = (pages.to + page - 1) / page * page;
    return pages;
}

static int exchange_in(
    const struct dl_phdr_info *info, const struct elf_symbols *symbols, const struct work *work)
{
    struct pages pages = pages_of(info, symbols, work);
    size_t bytes = pages.to - pages.from;
    if (!bytes)
        return 0;
    if (mprotect((void *)pages.from, bytes, PROT_READ | PROT_WRITE) != 0) // NOLINT
        return -errno;
    for (size_t i = 0; i < work->count; i++) {
        ElfW(Sym) *symbol = symbol_of(info, symbols, &work->rows[i]);
        /* The dynamic linker adds the object's base again, modulo the word. */
        if (symbol)
            store_release(&symbol->st_value, (uintptr_t)work->rows[i].to - info->dlpi_addr);
    }
    /* SELinux does not let a changed page be executable again (execmod): no code lies there. */
    if (mprotect((void *)pages.from, bytes, pages.protection) != 0) // NOLINT
        (void)mprotect((void *)pages.from, bytes, PROT_READ);       // NOLINT
    return 0;
}

static int visit(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct work *work = argument;
    struct elf_symbols symbols;
    if (!elf_symbols_hold(info, work->inside))
        return 0;
    if (!elf_symbols_read(info, &symbols))
        return 1;
    work->result = exchange_in(info, &symbols, work);
    return 1;
}

int elf_exchange(const void *inside, const struct elf_exchange *rows, size_t count)
{
    int saved = errno;
    struct work work = {inside, rows, count, -ENOENT};
    dl_iterate_phdr(visit, &work);
    errno = saved;
    return work.result;
}
