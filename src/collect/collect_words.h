/* SPDX-License-Identifier: Apache-2.0 */
/* What tools call a container, its state, its ledger and its gate. */
#ifndef VGPU_COLLECT_COLLECT_WORDS_H
#define VGPU_COLLECT_COLLECT_WORDS_H

#include "collect/collect.h"

/* What a container is called: its pod's namespace, pod and container, as far as they are known, or
 * its region's file. Not made fit to be printed. Lasts until the next call of the thread. */
const char *collect_words_container(const struct collected_container *container);

/* In one word: how the container is on the device. */
const char *collect_words_state(
    const struct collected_container *container, const struct collected_device *device);

/* "rm", "api", "-"; "launch", "channel", "-". */
const char *collect_words_ledger(unsigned ledger);

/* What became of the process's memory on the card: "released", "not drained"; NULL: nothing was to
 * become of it. */
const char *collect_words_release(unsigned release_state);
const char *collect_words_gate(enum collected_gate gate);

#endif
