/* SPDX-License-Identifier: Apache-2.0 */
/* Device lists: the input's first line is a /proc information file, its second the list, its third
 * a UUID. */
#include "driver/device_list.c" /* its readers of what /proc says are its own */

#include "fuzz.h"

#define DEVICES 3

static void learn(void)
{
    LOCKED_TO_END(list_lock);
    prepared = true;
    known.count = DEVICES;
    for (unsigned i = 0; i < DEVICES; i++) {
        known.devices[i].minor = (int)i / 2; /* the first two are instances of one card */
        snprintf(known.devices[i].card, sizeof(known.devices[i].card),
            "GPU-%u0000000-0000-0000-0000-000000000001", i / 2 * 2);
        snprintf(known.devices[i].uuid, sizeof(known.devices[i].uuid),
            "%s-%u0000000-0000-0000-0000-000000000001", i < 2 ? "MIG" : "GPU", i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), uuid[48] = "", minor[16] = "";
    char *list = strchr(text, '\n'), *asked = list ? strchr(list + 1, '\n') : NULL;
    if (list)
        *list++ = '\0';
    if (asked)
        *asked++ = '\0';
    learn();
    copy_field(uuid, sizeof(uuid), text, "GPU UUID:");
    copy_field(minor, sizeof(minor), text, "Device Minor:");
    FUZZ_CHECK(memchr(uuid, 0, sizeof(uuid)) && memchr(minor, 0, sizeof(minor)));
    (void)parse_digits(minor);
    int items = 1;
    for (const char *at = list; at && *at; at++)
        items += *at == ',';
    int positions[DEVICES + 1];
    for (unsigned i = 0; i <= DEVICES; i++) {
        const char *device = i < DEVICES ? known.devices[i].uuid : asked ? asked : uuid;
        const char *const lists[] = {list, NULL};
        positions[i] = device_list_position(lists, device);
        FUZZ_CHECK(positions[i] >= (i < DEVICES ? 0 : -1) && positions[i] < items + DEVICES);
        for (unsigned j = 0; i < DEVICES && j < i; j++)
            FUZZ_CHECK(positions[j] != positions[i]);
    }
    free(text);
    return 0;
}
