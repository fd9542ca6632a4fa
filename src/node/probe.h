/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that talks to NVML. NVML blocks for as long as the driver does (seconds where a card
 * is being lost), and the kubelet's calls must not wait for that: so it has a thread of its own,
 * which shares nothing with the loop but a queue of messages. Events are waited for there, for a
 * second at a time; a driver that is missing is looked for every 10 s. */
#ifndef VGPU_NODE_PROBE_H
#define VGPU_NODE_PROBE_H

#include "cluster/device_id.h"
#include "net/error.h"
#include "node/scan.h"

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct probe;

/* Xid 48 is the driver's number for an uncorrectable ECC error; the ECC event is told as that. */
#define PROBE_XID_ECC 48
#define PROBE_NO_INSTANCE 0xffffffffu

struct probe_event {
    char uuid[DEVICE_UUID_BYTES];            /* of the card; "": NVML did not tell which */
    uint32_t gpu_instance, compute_instance; /* PROBE_NO_INSTANCE: the whole card */
    uint64_t xid;
};

struct probe_options {
    const char *inside, *root; /* for nvml_open */
    bool with_links, with_events;
    unsigned interval_s; /* between two looks at all cards */
    unsigned retry_s;    /* between two tries to open NVML; 0: 10 */
    struct scan_places places;
};

/* All are called in the loop's thread, in the order in which things happened. */
struct probe_callbacks {
    /* Borrowed. */
    void (*on_scan)(void *context, const struct scan *scan);
    void (*on_event)(void *context, const struct probe_event *event);
    /* NVML cannot be opened, or no more; told again only where the text differs. */
    void (*on_absent)(void *context, const char *text);
    void *context;
};

/* Starts the thread. Texts of the options are copied. */
struct probe *probe_create(struct event_base *base, const struct probe_options *options,
    const struct probe_callbacks *callbacks, struct error *error);

/* Ends the thread; where NVML holds it for more than 3 s it is left behind, with its memory. */
void probe_destroy(struct probe *probe);

/* From now on cards are looked at every `seconds` (0: interval_s), and NVML is started anew for
 * each look where `anew` is set: what it says of a card that was lost does not change otherwise. */
void probe_hurry(struct probe *probe, unsigned seconds, bool anew);

/* A look at once. */
void probe_wake(struct probe *probe);

#endif
