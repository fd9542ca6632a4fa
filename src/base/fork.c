/* SPDX-License-Identifier: Apache-2.0 */
/* First entry into a process, and into a forked child. */
#include "base/fork.h"

#include "base/atomic.h"
#include "base/sleep.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#define ADVICE_UNKNOWN 0x7ffe

enum { OUTSIDE = 0, ENTERING = 1, ENTERED = 2 };

unsigned *fork_entered_word;

/* In its place where the kernel wipes no page. Then process ids decide: which process is
 * entering, and which has entered. */
static unsigned no_word;
static int entering_pid, entered_pid;

/* Emulators answer 0 to any advice and do nothing, so one that does not exist is asked for too. */
static unsigned *word_create(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return &no_word;
    if (madvise(page, 4096, MADV_WIPEONFORK) != 0 || madvise(page, 4096, ADVICE_UNKNOWN) == 0) {
        munmap(page, 4096);
        return &no_word;
    }
    return page;
}

/* Which of both ways it is is decided once: a change would be taken for a fork. */
static unsigned *word_get(void)
{
    unsigned *word = load_acquire(&fork_entered_word);
    if (word)
        return word;
    unsigned *fresh = word_create();
    if (swap_seq_cst(&fork_entered_word, (unsigned *)NULL, fresh))
        return fresh;
    if (fresh != &no_word)
        munmap(fresh, 4096);
    return load_acquire(&fork_entered_word);
}

/* A child that was forked while a thread of its parent entered finds the parent's pid there. */
static void enter_by_pid(void (*reset)(void))
{
    int pid = (int)getpid();
    while (load_acquire(&entered_pid) != pid) {
        int entering = load_acquire(&entering_pid);
        if (entering != pid && swap_seq_cst(&entering_pid, entering, pid)) {
            reset();
            store_release(&entered_pid, pid);
            return;
        }
        sleep_ns(50000);
    }
}

bool fork_is_unentered_child(void)
{
    unsigned *word = load_acquire(&fork_entered_word);
    if (word == &no_word)
        return load_acquire(&entered_pid) != (int)getpid();
    return word && load_acquire(word) == OUTSIDE;
}

void fork_enter_slow(void (*reset)(void))
{
    int errno_kept = errno;
    unsigned *word = word_get();
    if (word == &no_word) {
        enter_by_pid(reset);
    } else if (swap_seq_cst(word, OUTSIDE, ENTERING)) {
        reset();
        store_release(word, ENTERED);
    } else {
        while (load_acquire(word) != ENTERED)
            sleep_ns(50000);
    }
    errno = errno_kept;
}
