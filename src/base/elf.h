/* SPDX-License-Identifier: Apache-2.0 */
/* Symbols of loaded objects, found without the dynamic linker's own calls: dlsym is what we
 * replace, and musl has no dlvsym. */
#ifndef VGPU_BASE_ELF_H
#define VGPU_BASE_ELF_H

#include <stdbool.h>
#include <stddef.h>

/* The function `name` as the next object after the one that contains `inside` defines it, in the
 * loader's search order; NULL where none does. Takes the loader's lock for the walk. */
void *elf_next_function(const char *name, const void *inside);

/* As elf_next_function, but only objects whose file name begins with one of the C library's
 * (libc.so, libc.musl, libdl.so, ld-musl): for dlsym itself, past other interposers. */
void *elf_libc_function(const char *name);

/* Whether a loaded object's list of needed libraries has one that begins with `name`. Likewise. */
bool elf_is_needed(const char *name);

/* The base name of the file that the object with the address `inside` was loaded by: a copy, cut to
 * fit; "" for the program itself and where none holds it. Takes the loader's lock for the walk. */
void elf_object_name(const void *inside, char *ret_name, size_t size);

#endif
