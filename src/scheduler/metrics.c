/* SPDX-License-Identifier: Apache-2.0 */
/* GET /metrics with HAMi's names, /healthz and /readyz. */
#include "net/exposition.h"
#include "scheduler/scheduler_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB 1048576.0
#define ZONE "vGPU"

struct page {
    struct exposition out;
    const struct scheduler *scheduler;
    const struct usage_node **nodes;
    size_t node_count;
    const struct quota_namespace **quotas;
    size_t quota_count;
};

static void label_percent(struct exposition_labels *labels, const char *name, int64_t value)
{
    exposition_label_number(labels, name, value > 0 ? (uint64_t)value : 0);
}

/* The names of labels, as HAMi has them now and had them before 2.8. */
struct names {
    const char *node, *uuid, *index, *type, *cores, *memory;
};
static const struct names current = {
    "node", "device_uuid", "device_index", "device_type", "device_cores", "device_memory_limit"};
static const struct names legacy = {
    "nodeid", "deviceuuid", "deviceidx", "devicetype", "devicecores", "devicememorylimit"};

enum { WITH_TYPE = 1, WITH_CORES = 2, WITH_MEMORY = 4 };

static struct exposition_labels device_labels(
    const struct names *names, const struct usage_node *node, size_t at, unsigned with)
{
    const struct usage_device *device = &node->devices[at];
    struct exposition_labels labels = {.length = 0};
    exposition_label(&labels, names->node, node->name);
    exposition_label(&labels, names->uuid, node->uuids[at]);
    exposition_label_number(&labels, names->index, device->index);
    if (with & WITH_TYPE)
        exposition_label(&labels, names->type, node->types[at]);
    if (with & WITH_CORES)
        label_percent(&labels, names->cores, device->used.cores);
    if (with & WITH_MEMORY)
        label_percent(&labels, names->memory, device->total.memory);
    exposition_label(&labels, "zone", ZONE);
    return labels;
}

typedef bool value_function(const struct usage_device *device, double *ret_value);

static bool memory_limit(const struct usage_device *device, double *ret_value)
{
    *ret_value = (double)device->total.memory * MIB;
    return true;
}

static bool core_limit(const struct usage_device *device, double *ret_value)
{
    *ret_value = (double)device->total.cores;
    return true;
}

static bool memory_allocated(const struct usage_device *device, double *ret_value)
{
    *ret_value = (double)device->used.memory * MIB;
    return true;
}

static bool shared_count(const struct usage_device *device, double *ret_value)
{
    *ret_value = (double)device->used.slots;
    return true;
}

static bool core_allocated(const struct usage_device *device, double *ret_value)
{
    *ret_value = (double)device->used.cores;
    return true;
}

static bool memory_share(const struct usage_device *device, double *ret_value)
{
    if (!device->total.memory)
        return false;
    *ret_value = (double)device->used.memory / (double)device->total.memory;
    return true;
}

static const struct device_family {
    const char *name, *legacy_name, *help;
    unsigned with, legacy_with;
    value_function *value;
} device_families[] = {
    {"hami_gpu_memory_limit_bytes", "GPUDeviceMemoryLimit", "Device memory limit for a certain GPU",
        WITH_TYPE, WITH_TYPE, memory_limit},
    {"hami_gpu_core_limit_ratio", "GPUDeviceCoreLimit", "Device core limit for a certain GPU",
        WITH_TYPE, WITH_TYPE, core_limit},
    {"hami_gpu_memory_allocated_bytes", "GPUDeviceMemoryAllocated",
        "Device memory allocated for a certain GPU", WITH_TYPE | WITH_CORES, WITH_TYPE | WITH_CORES,
        memory_allocated},
    {"hami_gpu_shared_count", "GPUDeviceSharedNum", "Number of containers sharing this GPU",
        WITH_TYPE, WITH_TYPE, shared_count},
    {"hami_gpu_core_allocated_ratio", "GPUDeviceCoreAllocated",
        "Device core allocated for a certain GPU", WITH_TYPE, WITH_TYPE, core_allocated},
    {"hami_node_gpu_overview", "nodeGPUOverview", "GPU overview on a certain node",
        WITH_TYPE | WITH_CORES | WITH_MEMORY, WITH_TYPE | WITH_CORES | WITH_MEMORY,
        memory_allocated},
    {"hami_node_gpu_memory_allocated_ratio", "nodeGPUMemoryPercentage",
        "GPU Memory Allocated Percentage on a certain GPU", WITH_TYPE, 0, memory_share},
};

static void add_devices(struct page *page, const struct device_family *family, bool is_legacy)
{
    exposition_family(
        &page->out, is_legacy ? family->legacy_name : family->name, "gauge", family->help);
    for (size_t i = 0; i < page->node_count; i++)
        for (size_t k = 0; k < page->nodes[i]->count; k++) {
            double value;
            struct exposition_labels labels = device_labels(is_legacy ? &legacy : &current,
                page->nodes[i], k, is_legacy ? family->legacy_with : family->with);
            if (!labels.cut && family->value(&page->nodes[i]->devices[k], &value))
                exposition_sample(&page->out, labels.text, NULL, value);
        }
}

/* What each Pod holds of each device. HAMi's container_index is always 0, as its use is kept by
 * Pod; so is ours. */
static void add_pods(struct page *page, bool is_legacy, bool memory)
{
    static const char *const titles[2][2] = {
        {"hami_vgpu_core_allocated_ratio", "hami_vgpu_memory_allocated_bytes"},
        {"vGPUCoreAllocated", "vGPUMemoryAllocated"}};
    exposition_family(&page->out, titles[is_legacy][memory], "gauge",
        memory ? "vGPU memory allocated from a container" : "vGPU core allocated from a container");
    for (size_t i = 0; i < page->node_count; i++)
        for (const struct usage_pod *pod = page->nodes[i]->pods; pod; pod = pod->next)
            for (size_t k = 0; k < pod->count; k++) {
                const struct claim_share *share = &pod->shares[k].share;
                struct exposition_labels labels = {.length = 0};
                exposition_label(
                    &labels, is_legacy ? "podnamespace" : "namespace", pod->pod_namespace);
                exposition_label(&labels, is_legacy ? "nodename" : "node", page->nodes[i]->name);
                exposition_label(&labels, is_legacy ? "podname" : "pod", pod->name);
                exposition_label(&labels, is_legacy ? "containeridx" : "container_index", "0");
                exposition_label(&labels, is_legacy ? "deviceuuid" : "device_uuid", share->uuid);
                exposition_label(&labels, "zone", ZONE);
                if (!labels.cut)
                    exposition_sample(&page->out, labels.text, NULL,
                        memory ? (double)share->memory_mib * MIB : (double)share->cores_percent);
            }
}

static void label_integer(struct exposition_labels *labels, const char *name, const json_t *value)
{
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(value));
    exposition_label(labels, name, text);
}

/* An instance's name before 2.8: profile and GPU instance. */
static void label_instance_name(
    struct exposition_labels *labels, const char *profile, const json_t *gpu)
{
    char text[128];
    snprintf(text, sizeof(text), "%.100s-%lld", profile, (long long)json_integer_value(gpu));
    exposition_label(labels, "migname", text);
}

static void label_identity(struct exposition_labels *labels, const json_t *instance)
{
    const json_t *placement = json_object_get(instance, "placement");
    exposition_label(labels, "mig_uuid", json_string_value(json_object_get(instance, "migUUID")));
    exposition_label(labels, "profile", json_string_value(json_object_get(instance, "profile")));
    label_integer(labels, "gpu_instance_id", json_object_get(instance, "gpuInstanceID"));
    label_integer(labels, "compute_instance_id", json_object_get(instance, "computeInstanceID"));
    label_integer(labels, "placement_start", json_object_get(placement, "start"));
    label_integer(labels, "placement_size", json_object_get(placement, "size"));
}

/* An instance that HAMi's plugin has made; one without its identity is not there yet. */
static void add_instance(
    struct page *page, const struct usage_node *node, const json_t *instance, bool is_legacy)
{
    const struct names *names = is_legacy ? &legacy : &current;
    const char *uuid = json_string_value(json_object_get(instance, "gpuUUID"));
    const char *profile = json_string_value(json_object_get(instance, "profile"));
    const char *mig = json_string_value(json_object_get(instance, "migUUID"));
    const json_t *gpu = json_object_get(instance, "gpuInstanceID");
    const json_t *compute = json_object_get(instance, "computeInstanceID");
    struct exposition_labels labels = {.length = 0};
    if (!uuid || !profile || !mig || !json_is_integer(gpu) || !json_is_integer(compute))
        return;
    for (size_t i = 0; i < node->count; i++) {
        if (strcmp(node->uuids[i], uuid) != 0)
            continue;
        exposition_label(&labels, names->node, node->name);
        exposition_label(&labels, names->uuid, uuid);
        exposition_label_number(&labels, names->index, node->devices[i].index);
        if (is_legacy)
            label_instance_name(&labels, profile, gpu);
        else
            label_identity(&labels, instance);
        exposition_label(&labels, "zone", ZONE);
        if (!labels.cut)
            exposition_sample(&page->out, labels.text, NULL, 1);
        return;
    }
}

static void add_instances(struct page *page, bool is_legacy)
{
    exposition_family(&page->out,
        is_legacy ? "nodeGPUMigInstance" : "hami_node_gpu_mig_instance_info", "gauge",
        "Realized MIG instance identity and scheduler placement");
    for (size_t i = 0; i < page->node_count; i++)
        for (const struct usage_pod *pod = page->nodes[i]->pods; pod; pod = pod->next) {
            json_t *list = pod->mig ? json_loads(pod->mig, 0, NULL) : NULL;
            for (size_t k = 0; k < json_array_size(list); k++)
                add_instance(page, page->nodes[i], json_array_get(list, k), is_legacy);
            json_decref(list);
        }
}

static void quota_sample(
    struct page *page, const struct quota_namespace *entry, bool memory, bool is_legacy, bool used)
{
    const struct request_config *config = &page->scheduler->options.ask->request;
    struct exposition_labels labels = {.length = 0};
    int64_t limit = memory ? entry->limit.memory : entry->limit.cores;
    int64_t held = memory ? entry->used.memory : entry->used.cores;
    if (!used && limit == QUOTA_NONE)
        return;
    exposition_label(&labels, is_legacy ? "quotanamespace" : "namespace", entry->name);
    exposition_label(&labels, is_legacy ? "quotaName" : "quota_name",
        memory ? config->memory_name : config->cores_name);
    if (used)
        label_percent(&labels, "limit", limit == QUOTA_NONE ? 0 : limit);
    exposition_label(&labels, "zone", ZONE);
    if (!labels.cut)
        exposition_sample(&page->out, labels.text, NULL, (double)(used ? held : limit));
}

static void add_quotas(struct page *page, const char *name, bool is_legacy, bool used)
{
    exposition_family(&page->out, name, "gauge",
        used ? "resourcequota usage for a certain device"
             : "resourcequota limit for a certain device");
    for (size_t i = 0; i < page->quota_count; i++) {
        quota_sample(page, page->quotas[i], true, is_legacy, used);
        quota_sample(page, page->quotas[i], false, is_legacy, used);
    }
}

static void add_own(struct page *page)
{
    const struct scheduler *scheduler = page->scheduler;
    const struct {
        const char *name, *help;
        unsigned long value;
    } rows[] = {
        {"vgpu_scheduler_filters_total", "Filter requests", scheduler->filters},
        {"vgpu_scheduler_filters_failed_total", "Filter requests after which no node was left",
            scheduler->filters_failed},
        {"vgpu_scheduler_binds_total", "Pods that were bound", scheduler->binds_done},
        {"vgpu_scheduler_binds_failed_total", "Binds that failed", scheduler->binds_failed},
        {"vgpu_scheduler_refits_total",
            "Binds for which devices had to be chosen again, because none were reserved",
            scheduler->refits},
        {"vgpu_scheduler_reviews_total", "Admission reviews", scheduler->reviews},
        {"vgpu_scheduler_denials_total", "Admission reviews that were denied", scheduler->denials},
    };
    struct exposition_labels labels = {.length = 0};
    exposition_label(&labels, "version", VGPU_VERSION);
    exposition_family(&page->out, "hami_build_info", "gauge", "Build information");
    exposition_sample(&page->out, labels.text, NULL, 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        exposition_family(&page->out, rows[i].name, "counter", rows[i].help);
        exposition_sample(&page->out, NULL, NULL, (double)rows[i].value);
    }
}

static void add_waiting(struct page *page)
{
    exposition_family(&page->out, "vgpu_scheduler_binds_waiting", "gauge",
        "Binds that wait for a Pod that was bound to their node, or for the node's lock");
    exposition_sample(&page->out, NULL, NULL, (double)page->scheduler->binds_waiting);
    exposition_family(&page->out, "vgpu_scheduler_pods_in_flight", "gauge",
        "Pods that were bound and whose devices kubelet has not asked for yet");
    exposition_sample(&page->out, NULL, NULL, (double)flights_count(page->scheduler->flights));
    exposition_family(&page->out, "vgpu_scheduler_pods_waiting", "gauge",
        "Pods that ask for devices and are not bound");
    exposition_sample(&page->out, NULL, NULL, (double)page->scheduler->asked.count);
}

static void fill(struct page *page, bool is_legacy)
{
    for (size_t i = 0; i < sizeof(device_families) / sizeof(device_families[0]); i++)
        add_devices(page, &device_families[i], is_legacy);
    add_pods(page, is_legacy, true);
    add_pods(page, is_legacy, false);
    add_quotas(page, is_legacy ? "QuotaUsed" : "hami_resource_quota_used", is_legacy, true);
    if (!is_legacy)
        add_quotas(page, "hami_resource_quota_limit", false, false);
    add_instances(page, is_legacy);
}

static void answer_text(struct http_exchange *exchange, unsigned status, const char *text)
{
    http_exchange_answer(exchange, status, "text/plain", text, strlen(text));
}

void scheduler_metrics(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    const struct scheduler *scheduler = context;
    struct page page = {.scheduler = scheduler};
    (void)request;
    page.nodes = usage_list_nodes(scheduler->usage, &page.node_count);
    page.quotas = quotas_list(scheduler->usage->quotas, &page.quota_count);
    if (page.nodes && page.quotas) {
        fill(&page, false);
        if (scheduler->options.legacy_metrics)
            fill(&page, true);
        add_own(&page);
        add_waiting(&page);
    }
    free(page.nodes);
    free(page.quotas);
    if (page.out.text && !page.out.failed)
        http_exchange_answer(exchange, 200, EXPOSITION_CONTENT_TYPE, page.out.text, page.out.bytes);
    else
        answer_text(exchange, 500, "no memory\n");
    exposition_free(&page.out);
}

void scheduler_healthz(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    (void)context, (void)request;
    answer_text(exchange, 200, "ok\n");
}

void scheduler_readyz(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    const struct scheduler *scheduler = context;
    bool ready = scheduler_is_ready(scheduler);
    (void)request;
    answer_text(
        exchange, ready ? 200 : 503, ready ? "ok\n" : "the cluster has not been read yet\n");
}
