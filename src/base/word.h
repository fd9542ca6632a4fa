/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping on a word until another thread, or another process, changes it and wakes its sleepers:
 * the kernel's futex. All keep errno. */
#ifndef VGPU_BASE_WORD_H
#define VGPU_BASE_WORD_H

#include <stdbool.h>
#include <stdint.h>

/* Sleeps while *word is `value`, until another thread changes it and calls word_wake; may return
 * sooner. Where the kernel refuses the call it sleeps 1 ms. */
void word_wait(uint32_t *word, uint32_t value);

/* The same for at most `ns`. */
void word_wait_for(uint32_t *word, uint32_t value, uint64_t ns);

/* As word_wait, but false at once where the kernel refuses the call. */
bool word_try_wait(uint32_t *word, uint32_t value);

/* Wakes all that sleep on the word, or one of them. */
void word_wake(uint32_t *word);
void word_wake_one(uint32_t *word);

/* As word_wait_for, on a word of a file that processes share. False at once where the kernel
 * refuses the call: the file was shortened, an emulator knows no futex of a file, a system-call
 * filter refuses it. */
bool word_wait_shared(uint32_t *word, uint32_t value, uint64_t ns);

/* A word to sleep on beside others. */
struct word_awaited {
    uint32_t *word;
    uint32_t value;
    bool shared; /* with other processes */
};

#define WORD_AWAITED_MAX 16u

/* Sleeps while each word is its value, at most `ns`; may return sooner. False at once where the
 * kernel has no such call (before Linux 5.16) or a sandbox refuses it, where a word lies in a file
 * that was shortened, and for no word or more than WORD_AWAITED_MAX. */
bool word_wait_any(const struct word_awaited *words, unsigned count, uint64_t ns);

#endif
