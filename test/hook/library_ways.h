/* SPDX-License-Identifier: Apache-2.0 */
/* The library of library_ways.c. */
#ifndef VGPU_TEST_LIBRARY_WAYS_H
#define VGPU_TEST_LIBRARY_WAYS_H

enum library_way {
    WAY_NEXT,
    WAY_DEFAULT,
    WAY_HANDLE,
    WAY_NOLOAD,
    WAY_DEEPBIND,
    WAY_GLOBAL,
    WAY_VERSION,
    WAY_MAIN,
    WAY_PROCADDRESS, /* cuMemAlloc, whatever the name */
    WAY_LINKED,      /* cuMemAlloc_v2, whatever the name */
    WAYS
};

/* The function as the library finds it in this way; NULL where that finds none. */
void *library_way(enum library_way way, const char *name);

/* 1; a program may have a function of this name that returns something else. */
int library_hides(void);
/* library_hides() as the library's own reference to it is bound. */
int library_own(void);

#endif
