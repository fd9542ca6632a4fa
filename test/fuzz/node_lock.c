/* SPDX-License-Identifier: Apache-2.0 */
/* The node's lock, and the texts of its kind: handshake, times, durations, device IDs. */
#include "cluster/node_lock.h"

#include "cluster/device_id.h"
#include "codec/duration.h"
#include "cluster/health_judgement.h"
#include "codec/rfc3339.h"
#include "fuzz.h"

#include <errno.h>

static void check_lock(const char *text, int64_t now)
{
    struct node_lock lock;
    struct error error = {.text = ""};
    char value[NODE_LOCK_VALUE_BYTES];
    enum node_lock_decision decision;
    int result = node_lock_decode(text, &lock, &error);
    int decided = node_lock_decide(text, "n1", "ns", "pod", NODE_LOCK_HOLDER_EXISTS, now,
        INT64_C(300000000000), &decision, &error);
    FUZZ_CHECK(result == decided && (!result || *error.text));
    FUZZ_CHECK(result || decision != NODE_LOCK_ASK);
    if (result || !*lock.pod_name)
        return;
    FUZZ_CHECK(node_lock_is_held_by(text, lock.pod_namespace, lock.pod_name));
    if (!node_lock_encode(lock.taken_seconds, lock.pod_namespace, lock.pod_name, value)) {
        struct node_lock again;
        FUZZ_CHECK(!node_lock_decode(value, &again, NULL));
        FUZZ_CHECK(again.taken_seconds == lock.taken_seconds);
        FUZZ_CHECK(!strcmp(again.pod_name, lock.pod_name));
    }
}

static void check_duration(const char *text)
{
    int64_t ns, again;
    char written[DURATION_TEXT_BYTES];
    if (duration_parse(text, &ns))
        return;
    duration_format(ns, written);
    FUZZ_CHECK(!duration_parse(written, &again) && again == ns);
}

static void check_times(const char *text, int64_t now)
{
    int64_t seconds, again;
    char written[RFC3339_TEXT_BYTES];
    if (!rfc3339_parse_local(text, strlen(text), &seconds)) {
        FUZZ_CHECK(!rfc3339_format_local(seconds, written));
        FUZZ_CHECK(!strcmp(written, text));
    }
    if (!rfc3339_format(now, written))
        FUZZ_CHECK(!rfc3339_parse(written, strlen(written), &again) && again == now);
    const struct health_evidence evidence = {.handshake = text, .now_local_seconds = now};
    (void)health_judge(&evidence);
}

static void check_id(const char *text)
{
    char uuid[DEVICE_UUID_BYTES], again[DEVICE_UUID_BYTES];
    int result = device_id_physical(text, uuid);
    FUZZ_CHECK(result == 0 || result == -ENAMETOOLONG);
    FUZZ_CHECK(result || !strncmp(text, uuid, strlen(uuid)));
    /* A card is its own card. */
    FUZZ_CHECK(result || (!device_id_physical(uuid, again) && strlen(again) <= strlen(uuid)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    int64_t now = (int64_t)fuzz_number(&input, 8);
    char *text = fuzz_text(input.at, input.left);
    check_lock(text, now);
    check_duration(text);
    check_times(text, now);
    check_id(text);
    free(text);
    return 0;
}
