/* SPDX-License-Identifier: Apache-2.0 */
/* Tells a forked child from its parent without fork handlers: a page that the kernel wipes in the
 * child (MADV_WIPEONFORK, Linux 4.14). vfork and clone(CLONE_VM) children share the page and so
 * count as their parent. Where it is missing process ids are compared, and such children must not
 * enter. */
#ifndef VGPU_BASE_FORK_H
#define VGPU_BASE_FORK_H

#include <stdbool.h>

/* Runs `reset` exactly once in each process, before any other caller's fork_enter returns:
 * at the process's first entry, and at a forked child's first entry. `reset` must put every lock
 * and state that was inherited back to its start. Costs one load on the usual path, a getpid where
 * process ids decide. */
void fork_enter_slow(void (*reset)(void));

extern unsigned *fork_entered_word; /* nonzero once entered in this process; wiped by fork */

/* True in a forked child that has not entered, whose parent had: what it inherited is not its own.
 * For handlers at exit, which it inherits, too. */
bool fork_is_unentered_child(void);

static inline void fork_enter(void (*reset)(void))
{
    unsigned *word = __atomic_load_n(&fork_entered_word, __ATOMIC_ACQUIRE);
    if (__builtin_expect(!word || __atomic_load_n(word, __ATOMIC_ACQUIRE) != 2, 0))
        fork_enter_slow(reset);
}

#endif
