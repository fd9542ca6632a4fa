/* SPDX-License-Identifier: Apache-2.0 */
/* The compute instances that CUDA gave this process. */
#include "driver/instance.h"

#include "base/atomic.h"
#include "base/lock.h"

#include <stdio.h>
#include <string.h>

#define TIES_MAX 64 /* the region has room for 64 devices */

/* Entries are written once, then counted. */
static struct {
    char card[48], instance[48];
} ties[TIES_MAX];
static unsigned count;
static struct lock tie_lock;

const char *instance_of(const char *uuid)
{
    unsigned known = load_acquire(&count);
    for (unsigned i = 0; i < known; i++) {
        if (!strcmp(ties[i].card, uuid))
            return ties[i].instance;
    }
    return uuid;
}

void instance_tie(const char *card, const char *instance)
{
    LOCKED_TO_END(tie_lock);
    if (instance_of(card) == card && count < TIES_MAX) {
        snprintf(ties[count].card, sizeof(ties[count].card), "%s", card);
        snprintf(ties[count].instance, sizeof(ties[count].instance), "%s", instance);
        store_release(&count, count + 1);
    }
}

void instance_reset(void)
{
    lock_reset(&tie_lock);
}
