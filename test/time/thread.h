/* SPDX-License-Identifier: Apache-2.0 */
/* What the preloaded library's parts share: the page, the calling thread's slot, its sleep. */
#ifndef VGPU_TEST_TIME_THREAD_H
#define VGPU_TEST_TIME_THREAD_H

#include "page.h"

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#define NEVER UINT64_MAX

/* Replaces a function of libc. */
#define REPLACES __attribute__((visibility("default")))

/* A system call, without libc; -errno where it fails. */
long raw_call(long number, long a, long b, long c, long d, long e, long f);

/* Sets errno and returns -1 for -errno. */
long call_result(long result);

/* Of the test; the process ends where there is none. */
struct vtime_page *vtime_page(void);

/* Of virtual CLOCK_MONOTONIC. Each call takes VTIME_READ_NS. */
uint64_t vtime_now_ns(void);

/* The deadline on virtual CLOCK_MONOTONIC that a time of the clock means. */
uint64_t vtime_deadline(clockid_t clock, const struct timespec *time);
uint64_t vtime_after(uint64_t ns);
uint64_t ns_of(const struct timespec *time);
struct timespec timespec_of(uint64_t ns);

/* True for the clocks that virtual time replaces; those of processor time stay. */
bool vtime_has_clock(clockid_t clock);

/* 0, or -EINTR where a signal's handler ran meanwhile. */
int vtime_sleep(uint64_t until_ns);
void vtime_yield(void);

/* Waits as futex_waitv(2) until a word has another value, is woken, or the deadline has passed
 * (NEVER: without one). Returns the woken word's index, or -EAGAIN, -EINTR, -ETIMEDOUT. */
struct futex_waitv_word {
    uint64_t value, address;
    uint32_t flags, reserved;
};
#define VTIME_WORDS_MAX 15
long vtime_wait_words(const struct futex_waitv_word *words, unsigned count, uint64_t until_ns);
long vtime_wait_word(uint32_t *word, uint32_t value, bool shared, uint64_t until_ns);

/* Wakes who waits by such a word. */
long vtime_wake_word(uint32_t *word, long waiters, bool shared);
/* To be called before a wake by other means. */
void vtime_note_wake(bool shared);

/* Between looks at what cannot be slept on together with a deadline: a 16th of the time that was
 * waited so far, from STEP_FIRST_NS to STEP_LAST_NS. Returns false once the deadline has passed;
 * *ret_error is then -ETIMEDOUT, or -EINTR after a signal. */
struct vtime_steps {
    uint64_t began_ns, until_ns;
};
struct vtime_steps vtime_steps_begin(uint64_t until_ns);
bool vtime_step(const struct vtime_steps *steps, int *ret_error);

/* SIGALRM for this process at that time in place of the one set before; NEVER: none. Returns when
 * that would have been. */
uint64_t vtime_set_alarm(uint64_t at_ns);

/* A signal was sent: sleepers may run. */
void vtime_note_signal(void);

#endif
