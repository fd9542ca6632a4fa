/* SPDX-License-Identifier: Apache-2.0 */
/* A collection in words. */
#include "collect/collect_words.h"

#include <stdio.h>

const char *collect_words_container(const struct collected_container *container)
{
    static _Thread_local char name[sizeof(container->pod_namespace) + sizeof(container->pod_name) +
                                   sizeof(container->container_name) + 3];
    const char *pod = container->pod_name[0] ? container->pod_name : container->pod_uid;
    if (!pod[0] && !container->container_name[0])
        return container->path;
    snprintf(name, sizeof(name), "%s%s%s%s%s", container->pod_namespace,
        container->pod_namespace[0] && pod[0] ? "/" : "", pod,
        (container->pod_namespace[0] || pod[0]) && container->container_name[0] ? "/" : "",
        container->container_name);
    return name;
}

const char *collect_words_state(
    const struct collected_container *container, const struct collected_device *device)
{
    if (container->checkpointed)
        return "checkpointed";
    if (container->released)
        return "released";
    if (container->paused)
        return "paused";
    if (container->held)
        return "held";
    if (device->memory_closed)
        return "closed";
    if (device->throttled)
        return "throttled";
    if (!container->process_count)
        return "empty";
    if (container->lifted && device->core_limit)
        return "lifted";
    return device->share_now >= 0.05 ? "running" : device->share_now >= 0 ? "idle" : "-";
}

const char *collect_words_ledger(unsigned ledger)
{
    return ledger == 1 ? "rm" : ledger == 2 ? "api" : "-";
}

const char *collect_words_release(unsigned release_state)
{
    static const char *const words[] = {NULL, "moving", "released", "partly released",
        "not drained", "captures", "no room", "parked", "checkpointed"};
    return release_state < sizeof(words) / sizeof(words[0]) ? words[release_state] : NULL;
}

const char *collect_words_gate(enum collected_gate gate)
{
    static const char *const words[] = {"-", "launch", "channel"};
    return words[gate];
}
