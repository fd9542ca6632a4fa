/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanging what the dynamic linker finds in a loaded object. */
#ifndef VGPU_HOOK_DOOR_ELF_EXCHANGE_H
#define VGPU_HOOK_DOOR_ELF_EXCHANGE_H

#include <stddef.h>

/* One exported function of the object, in the order of the caller's table. */
struct elf_exchange {
    const char *name;
    void *to;
    void **from; /* its address in the object; *from NULL: the object lacks it */
};

/* Edits the dynamic symbol table of the loaded object that contains `inside`: from then on the
 * dynamic linker finds `to` where it found `*from`, for dlsym with any handle and for the
 * references of objects that are loaded later. Nothing else of the object changes: references that
 * are bound already, and calls within it, stay.
 *
 * The table's pages become private to the process (24 bytes a symbol). They are writable meanwhile,
 * and contain no code. Rows that are exchanged already, or whose symbol has another address, are
 * left alone. Any thread: glibc holds a lock of the loader over the walk, and the driver needs
 * glibc.
 *
 * Returns 0; -ENOENT where no object contains `inside` or it has no symbol table; -errno of
 * mprotect where a sandbox or a security module refuses, and then nothing was changed. */
int elf_exchange(const void *inside, const struct elf_exchange *rows, size_t count)
    __attribute__((warn_unused_result));

#endif
