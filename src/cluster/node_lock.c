/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/node_lock.h"

#include "codec/duration.h"
#include "codec/rfc3339.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CONTENTION "node lock contention"

static int copy_name(const char *from, size_t length, char *to, size_t size)
{
    if (length >= size)
        return -EINVAL;
    memcpy(to, from, length);
    to[length] = '\0';
    return 0;
}

int node_lock_decode(const char *value, struct node_lock *ret_lock, struct error *error)
{
    struct node_lock lock = {0};
    const char *first = strchr(value, ','), *second = first ? strchr(first + 1, ',') : NULL;
    size_t parts = 1;
    for (const char *at = value; (at = strchr(at, ',')); at++)
        parts++;
    if (parts != 1 && parts != 3)
        return error_set(error, EINVAL,
            "malformed lock annotation: expected 3 parts, got %zu from %.100s", parts, value);
    size_t time_length = first ? (size_t)(first - value) : strlen(value);
    if (rfc3339_parse(value, time_length, &lock.taken_seconds))
        return error_set(error, EINVAL,
            "malformed lock annotation: \"%.100s\" does not begin with an RFC 3339 time", value);
    if (second &&
        (copy_name(first + 1, (size_t)(second - first - 1), lock.pod_namespace,
             sizeof(lock.pod_namespace)) ||
            copy_name(second + 1, strlen(second + 1), lock.pod_name, sizeof(lock.pod_name))))
        return error_set(
            error, EINVAL, "malformed lock annotation: a name in %.100s is too long", value);
    *ret_lock = lock;
    return 0;
}

int node_lock_encode(int64_t now_seconds, const char *pod_namespace, const char *pod_name,
    char value[NODE_LOCK_VALUE_BYTES])
{
    char time[RFC3339_TEXT_BYTES];
    if (strlen(pod_namespace) >= NODE_LOCK_NAMESPACE_BYTES ||
        strlen(pod_name) >= NODE_LOCK_NAME_BYTES || strchr(pod_namespace, ',') ||
        strchr(pod_name, ','))
        return -EINVAL;
    int result = rfc3339_format(now_seconds, time);
    if (!result)
        snprintf(value, NODE_LOCK_VALUE_BYTES, "%s,%s,%s", time, pod_namespace, pod_name);
    return result;
}

static bool is_expired(const struct node_lock *lock, int64_t now_seconds, int64_t expiry_ns)
{
    int64_t age;
    if (__builtin_sub_overflow(now_seconds, lock->taken_seconds, &age))
        return now_seconds > lock->taken_seconds;
    return (__int128)age * 1000000000 > expiry_ns;
}

int node_lock_decide(const char *value, const char *node, const char *pod_namespace,
    const char *pod_name, enum node_lock_holder holder, int64_t now_seconds, int64_t expiry_ns,
    enum node_lock_decision *ret_decision, struct error *error)
{
    struct node_lock lock = {0};
    char expiry[DURATION_TEXT_BYTES];
    if (!value) {
        *ret_decision = NODE_LOCK_TAKE;
        return 0;
    }
    int result = node_lock_decode(value, &lock, error);
    if (result)
        return result;
    bool named = *lock.pod_namespace && *lock.pod_name;
    if (named && !strcmp(lock.pod_namespace, pod_namespace) && !strcmp(lock.pod_name, pod_name)) {
        *ret_decision = NODE_LOCK_HELD;
        return 0;
    }
    if (is_expired(&lock, now_seconds, expiry_ns) || (named && holder == NODE_LOCK_HOLDER_GONE)) {
        *ret_decision = NODE_LOCK_TAKE;
        return 0;
    }
    *ret_decision =
        named && holder == NODE_LOCK_HOLDER_UNKNOWN ? NODE_LOCK_ASK : NODE_LOCK_CONTENTION;
    duration_format(expiry_ns, expiry);
    if (*ret_decision == NODE_LOCK_CONTENTION)
        error_set(error, EBUSY, "node %s has been locked within %s: " CONTENTION, node, expiry);
    return 0;
}

bool node_lock_is_held_by(const char *value, const char *pod_namespace, const char *pod_name)
{
    size_t length = strlen(value), name = strlen(pod_name), space = strlen(pod_namespace);
    if (length < name + space + 2)
        return false;
    const char *suffix = value + length - name - space - 2;
    return suffix[0] == ',' && !memcmp(suffix + 1, pod_namespace, space) &&
           suffix[1 + space] == ',' && !memcmp(suffix + 2 + space, pod_name, name);
}

int node_lock_error_locked(const char *node, struct error *error)
{
    return error_set(error, EBUSY, "node %s is locked: " CONTENTION, node);
}

int node_lock_error_waited(const char *node, int64_t waited_ns, struct error *error)
{
    char waited[DURATION_TEXT_BYTES];
    duration_format(waited_ns, waited);
    return error_set(error, ETIMEDOUT,
        "timed out after %s waiting for node %s to be unlocked: " CONTENTION, waited, node);
}
