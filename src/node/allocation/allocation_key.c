/* SPDX-License-Identifier: Apache-2.0 */
/* The key of proofs. Each kubelet writes a Secret's file when it gets to it, within a minute or so:
 * scheduler and plugin have another key for a while, and Pods that were bound before the change are
 * served after it. So the former key holds for some time, too. */
#include "node/allocation/allocation_parts.h"

#include "base/clock.h"
#include "cluster/proof.h"
#include "net/log_line.h"
#include "node/settings.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEY_BYTES_MAX 4096
#define FORMER_S 600

static void forget(struct allocation_key *key)
{
    if (key->bytes)
        explicit_bzero(key->bytes, key->size);
    free(key->bytes);
    *key = (struct allocation_key){0};
}

static void take(struct allocation_keys *keys, char *bytes, size_t size)
{
    bool same = keys->now.bytes && keys->now.size == size && !memcmp(keys->now.bytes, bytes, size);
    if (!same) {
        forget(&keys->former);
        keys->former = keys->now;
        keys->now = (struct allocation_key){bytes, size};
        keys->taken_ns = clock_now_ns();
        return;
    }
    explicit_bzero(bytes, size);
    free(bytes);
}

/* By the file's time, for nobody may have looked when it was replaced; and by ours, should the
 * clock be set. */
static bool is_former_over(const struct allocation_keys *keys)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return clock_now_ns() - keys->taken_ns > FORMER_S * 1000000000ull ||
           now.tv_sec - keys->stamp.modified_ns / 1000000000 > FORMER_S;
}

static void read_key(struct allocation *allocation)
{
    struct allocation_keys *keys = &allocation->keys;
    const char *path = allocation->settings->proof_key_file;
    struct file_stamp stamp;
    struct error error;
    char *bytes;
    size_t size;
    if (!*path || !file_stamp_differs(&keys->stamp, path))
        return;
    if (file_read(path, KEY_BYTES_MAX, &bytes, &size, &stamp, &error)) {
        log_line(LOG_LINE_WARNING, "allocation: the key for proofs: %s", error.text);
        return;
    }
    keys->stamp = stamp;
    if (size >= PROOF_KEY_MIN) {
        take(keys, bytes, size);
        return;
    }
    log_line(LOG_LINE_WARNING, "allocation: %s has %zu bytes, a key has %d or more; %s", path, size,
        PROOF_KEY_MIN, keys->now.bytes ? "the key before it stays" : "no proof is accepted");
    explicit_bzero(bytes, size);
    free(bytes);
}

bool allocation_is_proven(
    struct allocation *allocation, const char *uid, const char *text, const char *proof)
{
    struct allocation_keys *keys = &allocation->keys;
    const char *node = allocation->settings->node_name;
    if (!text || !proof)
        return false;
    read_key(allocation);
    if (keys->former.bytes && is_former_over(keys))
        forget(&keys->former);
    return (keys->now.bytes &&
               proof_check(keys->now.bytes, keys->now.size, uid, node, text, proof)) ||
           (keys->former.bytes &&
               proof_check(keys->former.bytes, keys->former.size, uid, node, text, proof));
}

bool allocation_prove(
    struct allocation *allocation, const struct pods_pod *pod, const char *text, char *ret_proof)
{
    const struct pod_view *view = &pod->view;
    const struct allocation_key *key = &allocation->keys.now;
    return allocation_is_proven(allocation, view->uid, view->allocated, view->proof) &&
           !proof_make(
               key->bytes, key->size, view->uid, allocation->settings->node_name, text, ret_proof);
}

void allocation_key_forget(struct allocation *allocation)
{
    forget(&allocation->keys.now);
    forget(&allocation->keys.former);
}
