/* SPDX-License-Identifier: Apache-2.0 */
/* A change to a container that was asked for on the screen: limits, a pause, its end. */
#ifndef VGPU_TOP_ORDER_H
#define VGPU_TOP_ORDER_H

#include "region/region_set.h"
#include "collect/collect.h"

#include <limits.h>
#include <stdbool.h>

#define TOP_ORDER_PIDS 8 /* of processes by which the region is looked for */
#define TOP_MESSAGE_BYTES 256

struct top_order {
    /* The region's file, and where it may be found. */
    dev_t file_device;
    ino_t file_inode;
    char path[PATH_MAX];
    unsigned pids[TOP_ORDER_PIDS], pid_count;
    /* What is to be done. */
    bool is_pause, paused;
    struct region_change change;
    int device; /* REGION_ALL_DEVICES */
    /* What came of it: one line, escaped. */
    bool failed;
    char message[TOP_MESSAGE_BYTES];
};

/* Which container it is for; the rest is zero. */
void top_order_begin(struct top_order *order, const struct collected_container *container);

/* Does it, and says what came of it. Waits for no program, for the file system and, up to 2 s, for
 * the region's lock. */
void top_order_do(struct top_order *order);

#endif
