/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/ask.h"

#include "codec/no_memory.h"
#include "cluster/pod_devices.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

const json_t *ask_container_at(const json_t *pod, size_t at)
{
    const json_t *spec = json_object_get(pod, "spec");
    const json_t *init = json_object_get(spec, "initContainers");
    size_t before = json_array_size(init);
    return at < before ? json_array_get(init, at)
                       : json_array_get(json_object_get(spec, "containers"), at - before);
}

int ask_kinds(const json_t *pod, enum ask_kind *kinds, size_t max)
{
    const json_t *spec = json_object_get(pod, "spec");
    size_t init = json_array_size(json_object_get(spec, "initContainers"));
    size_t count = init + json_array_size(json_object_get(spec, "containers"));
    if (count > max)
        return -E2BIG;
    for (size_t i = 0; i < count; i++)
        kinds[i] = i >= init ? ASK_APP
                   : !strcmp(text_of(ask_container_at(pod, i), "restartPolicy"), "Always")
                       ? ASK_SIDECAR
                       : ASK_INIT;
    return (int)count;
}

/* As HAMi knows it: a label, or the member of newer APIs. */
static bool is_grouped(const json_t *pod)
{
    const json_t *labels = json_object_get(json_object_get(pod, "metadata"), "labels");
    const json_t *group = json_object_get(json_object_get(pod, "spec"), "schedulingGroup");
    return *text_of(labels, "scheduling.x-k8s.io/pod-group") || *text_of(group, "podGroupName");
}

static int read_containers(
    const json_t *pod, const struct request_config *config, struct ask *ask, struct error *error)
{
    enum ask_kind kinds[POD_DEVICES_CONTAINERS_MAX];
    int count = ask_kinds(pod, kinds, POD_DEVICES_CONTAINERS_MAX);
    if (count < 0)
        return error_set(
            error, EINVAL, "the Pod has more than %d containers", POD_DEVICES_CONTAINERS_MAX);
    ask->containers = calloc((size_t)count + 1, sizeof(ask->containers[0]));
    if (!ask->containers)
        return no_memory(error, "the Pod's containers");
    ask->count = (size_t)count;
    for (size_t i = 0; i < ask->count; i++) {
        const json_t *container = ask_container_at(pod, i);
        ask->containers[i].kind = kinds[i];
        ask->containers[i].request = request_parse(config, json_object_get(container, "resources"));
        ask->devices += (size_t)ask->containers[i].request.count;
    }
    if (ask->devices > ASK_DEVICES_MAX)
        return error_set(error, EINVAL, "the Pod asks for %zu devices, more than %d", ask->devices,
            ASK_DEVICES_MAX);
    return 0;
}

/* NULL differs from "". */
static int hash_text(gnutls_hash_hd_t hash, const char *text)
{
    const uint64_t length = text ? strlen(text) : UINT64_MAX;
    int failed = gnutls_hash(hash, &length, sizeof(length));
    return failed || !text ? failed : gnutls_hash(hash, text, (size_t)length);
}

static int hash_all(gnutls_hash_hd_t hash, const json_t *annotations, const struct ask *ask)
{
    static const char *const keys[] = {WISH_USE_TYPE, WISH_NO_USE_TYPE, WISH_USE_UUID,
        WISH_NO_USE_UUID, WISH_NUMA_BIND, WISH_MODE, WISH_NODE_POLICY, WISH_DEVICE_POLICY,
        WISH_WEIGHTS};
    const int32_t grouped = ask->grouped;
    int failed = gnutls_hash(hash, &grouped, sizeof(grouped));
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && !failed; i++)
        failed = hash_text(hash, json_string_value(json_object_get(annotations, keys[i])));
    for (size_t i = 0; i < ask->count && !failed; i++) {
        const struct request *request = &ask->containers[i].request;
        const int32_t numbers[] = {(int32_t)ask->containers[i].kind, request->count,
            request->memory_mib, request->memory_percent, request->cores_percent};
        failed = gnutls_hash(hash, numbers, sizeof(numbers));
    }
    return failed;
}

static int make_digest(const json_t *annotations, struct ask *ask, struct error *error)
{
    gnutls_hash_hd_t hash;
    if (gnutls_hash_init(&hash, GNUTLS_DIG_SHA256))
        return error_set(error, EIO, "GnuTLS makes no digest");
    int failed = hash_all(hash, annotations, ask);
    gnutls_hash_deinit(hash, ask->digest);
    return failed ? error_set(error, EIO, "GnuTLS makes no digest") : 0;
}

int ask_read(
    const json_t *pod, const struct ask_config *config, struct ask *ret_ask, struct error *error)
{
    const json_t *metadata = json_object_get(pod, "metadata");
    const json_t *annotations = json_object_get(metadata, "annotations");
    struct ask ask = {
        .pod_namespace = text_of(metadata, "namespace"),
        .name = text_of(metadata, "name"),
        .uid = text_of(metadata, "uid"),
        .grouped = is_grouped(pod),
    };
    int result = read_containers(pod, &config->request, &ask, error);
    if (!result && ask.devices)
        result = wish_read(annotations, &config->defaults, &ask.wish, error);
    if (!result && ask.devices)
        result = make_digest(annotations, &ask, error);
    if (result)
        ask_finish(&ask);
    else
        *ret_ask = ask;
    return result;
}

void ask_finish(struct ask *ask)
{
    free(ask->containers);
    wish_finish(&ask->wish);
    *ask = (struct ask){0};
}
