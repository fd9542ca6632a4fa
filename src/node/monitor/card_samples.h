/* SPDX-License-Identifier: Apache-2.0 */
/* What NVML says of the node's cards, taken in a thread of its own: a driver that hangs, hangs that
 * thread alone. A driver that is loaded later is found at a later sample. */
#ifndef VGPU_NODE_MONITOR_CARD_SAMPLES_H
#define VGPU_NODE_MONITOR_CARD_SAMPLES_H

#include "net/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CARD_SAMPLES_MAX 128

struct card_sample {
    unsigned index; /* NVML's */
    char uuid[96], name[96];
    bool has_memory, has_utilization; /* NVML knows them */
    uint64_t used_bytes;
    unsigned utilization_percent, memory_controller_percent;
};

struct card_samples;

/* `inside` and `root`: where NVML's library is looked for (node/nvml.h). NULL: no memory, or no
 * thread. */
struct card_samples *card_samples_create(const char *inside, const char *root, struct error *error);
/* Waits 2 s at most for a sample that is being taken; before the process ends. Accepts NULL. */
void card_samples_destroy(struct card_samples *samples);

/* Asks for a sample; does not wait for it. Any number of times. */
void card_samples_ask(struct card_samples *samples);

/* Copies the last sample, if it is at most `age_ns` old; returns the number of cards. */
size_t card_samples_read(
    struct card_samples *samples, uint64_t age_ns, struct card_sample ret_cards[CARD_SAMPLES_MAX]);

#endif
