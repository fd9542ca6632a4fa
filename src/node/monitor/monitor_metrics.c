/* SPDX-License-Identifier: Apache-2.0 */
#include "node/monitor/monitor_metrics.h"

#include <stdio.h>

#define ZONE "zone=\"vGPU\""

/* Families with one sample for each device of a container. */
static const struct family {
    const char *name, *type, *help;
    enum figure figure;
    bool legacy;
} families[] = {
    {"hami_vgpu_memory_used_bytes", "gauge", "vGPU device memory usage in bytes", FIGURE_USED,
        false},
    {"hami_vgpu_memory_limit_bytes", "gauge", "vGPU device memory limit in bytes", FIGURE_LIMIT,
        false},
    {"hami_container_device_memory_bytes", "gauge", "Container device memory usage in bytes",
        FIGURE_USED, false},
    {"hami_container_device_utilization_ratio", "gauge", "Container device SM utilization ratio",
        FIGURE_UTILIZATION, false},
    {"hami_container_last_kernel_elapsed_seconds", "gauge",
        "Seconds since last kernel execution in container", FIGURE_IDLE_S, false},
    {"hami_vgpu_memory_context_bytes", "gauge", "Container device memory context size in bytes",
        FIGURE_CONTEXT, false},
    {"hami_vgpu_memory_module_bytes", "gauge", "Container device memory module size in bytes",
        FIGURE_MODULE, false},
    {"hami_vgpu_memory_buffer_bytes", "gauge", "Container device memory buffer size in bytes",
        FIGURE_DATA, false},
    {"vgpu_core_limit_percent", "gauge", "Limit of GPU time, percent of the device",
        FIGURE_CORE_LIMIT, false},
    {"vgpu_core_soft_limit_percent", "gauge",
        "Limit of GPU time while the device is otherwise idle, percent of the device",
        FIGURE_CORE_SOFT_LIMIT, false},
    {"vgpu_gpu_time_seconds_total", "counter",
        "Time for which the container kept the device busy while it was held to a compute limit",
        FIGURE_GPU_TIME_S, false},
    {"vgpu_gate_wait_seconds_total", "counter",
        "Time for which launches waited for the compute limit, summed over threads",
        FIGURE_WAITED_S, false},
    {"vgpu_memory_refusals_total", "counter", "Requests for device memory that were refused",
        FIGURE_REFUSALS, false},
    {"vGPU_device_memory_usage_in_bytes", "gauge", "vGPU device usage", FIGURE_USED, true},
    {"vGPU_device_memory_limit_in_bytes", "gauge", "vGPU device limit", FIGURE_LIMIT, true},
    {"Device_utilization_desc_of_container", "gauge", "Container device utilization description",
        FIGURE_UTILIZATION, true},
    {"Device_last_kernel_of_container", "gauge", "Container device last kernel description",
        FIGURE_IDLE_S, true},
};

static void write_family(
    struct exposition *exposition, const struct node_figures *figures, const struct family *family)
{
    exposition_family(exposition, family->name, family->type, family->help);
    for (size_t i = 0; i < figures->count; i++) {
        const struct container_figures *container = &figures->list[i];
        for (size_t d = 0; d < container->device_count; d++) {
            const struct device_figures *device = &container->devices[d];
            exposition_sample(exposition, family->legacy ? device->legacy_labels : device->labels,
                NULL, device->values[family->figure]);
        }
    }
}

static void write_kinds(struct exposition *exposition, const struct node_figures *figures)
{
    static const struct {
        const char *label;
        enum figure figure;
    } kinds[] = {{"kind=\"context\"", FIGURE_CONTEXT}, {"kind=\"module\"", FIGURE_MODULE},
        {"kind=\"buffer\"", FIGURE_BUFFER}, {"kind=\"managed\"", FIGURE_MANAGED},
        {"kind=\"spilled\"", FIGURE_SPILLED}, {"kind=\"other\"", FIGURE_OTHER}};
    exposition_family(exposition, "vgpu_memory_bytes", "gauge",
        "Device memory of the container by its kind; spilled: in host memory");
    for (size_t i = 0; i < figures->count; i++) {
        const struct container_figures *container = &figures->list[i];
        for (size_t d = 0; container->is_ours && d < container->device_count; d++)
            for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
                exposition_sample(exposition, container->devices[d].labels, kinds[k].label,
                    container->devices[d].values[kinds[k].figure]);
    }
}

/* HAMi's has the sizes as labels: a series for each. */
static void write_legacy_memory(struct exposition *exposition, const struct node_figures *figures)
{
    exposition_family(exposition, "Device_memory_desc_of_container", "gauge",
        "Container device memory description");
    for (size_t i = 0; i < figures->count; i++) {
        const struct container_figures *container = &figures->list[i];
        for (size_t d = 0; d < container->device_count; d++) {
            const double *values = container->devices[d].values;
            double rest = values[FIGURE_USED] - values[FIGURE_CONTEXT] - values[FIGURE_MODULE] -
                          values[FIGURE_DATA];
            char more[160];
            snprintf(more, sizeof(more),
                "context=\"%.0f\",module=\"%.0f\",data=\"%.0f\",offset=\"%.0f\"",
                values[FIGURE_CONTEXT], values[FIGURE_MODULE], values[FIGURE_DATA],
                rest > 0 ? rest : 0);
            exposition_sample(
                exposition, container->devices[d].legacy_labels, more, values[FIGURE_USED]);
        }
    }
}

static void write_infos(struct exposition *exposition, const struct node_figures *figures)
{
    static const char *const gates[] = {NULL, "gate=\"launch\"", "gate=\"channel\""};
    static const char *const ledgers[] = {NULL, "ledger=\"rm\"", "ledger=\"api\""};
    exposition_family(exposition, "vgpu_gate_info", "gauge",
        "What holds some process of the container to its compute limit");
    for (size_t i = 0; i < figures->count; i++)
        for (size_t d = 0; d < figures->list[i].device_count; d++)
            for (size_t g = 1; g < sizeof(gates) / sizeof(gates[0]); g++)
                if (figures->list[i].devices[d].gates[g])
                    exposition_sample(exposition, figures->list[i].devices[d].labels, gates[g], 1);
    exposition_family(exposition, "vgpu_ledger_info", "gauge",
        "By what some process of the container counts its device memory");
    for (size_t i = 0; i < figures->count; i++)
        for (size_t l = 1; l < sizeof(ledgers) / sizeof(ledgers[0]); l++)
            if (figures->list[i].ledgers[l])
                exposition_sample(exposition, figures->list[i].labels, ledgers[l], 1);
}

static double processes(const struct container_figures *container)
{
    return container->process_count;
}

static double paused(const struct container_figures *container)
{
    return container->paused;
}

static double held(const struct container_figures *container)
{
    return container->held;
}

static double lifted(const struct container_figures *container)
{
    return container->lifted;
}

static void write_states(struct exposition *exposition, const struct node_figures *figures)
{
    static const struct {
        const char *name, *help;
        double (*value)(const struct container_figures *container);
    } states[] = {{"vgpu_container_processes", "Processes that use a GPU", processes},
        {"vgpu_container_paused", "1: paused by vgpu pause", paused},
        {"vgpu_container_held", "1: it waits for a container of higher priority", held},
        {"vgpu_container_compute_limit_lifted",
            "1: the compute limit does not hold now, unless the policy is force", lifted}};
    for (size_t s = 0; s < sizeof(states) / sizeof(states[0]); s++) {
        exposition_family(exposition, states[s].name, "gauge", states[s].help);
        for (size_t i = 0; i < figures->count; i++)
            if (figures->list[i].is_ours)
                exposition_sample(
                    exposition, figures->list[i].labels, NULL, states[s].value(&figures->list[i]));
    }
}

/* ---- MIG devices of HAMi's dynamic mode ---- */

static void mig_labels(const struct pod_names_pod *pod, const struct pod_names_mig *mig,
    bool legacy, struct exposition_labels *labels)
{
    *labels = (struct exposition_labels){.length = 0};
    exposition_label(labels, legacy ? "podnamespace" : "namespace", pod->namespace_name);
    exposition_label(labels, legacy ? "podname" : "pod", pod->name);
    exposition_label(labels, legacy ? "ctrname" : "container", mig->container);
    exposition_label_number(labels, legacy ? "vdeviceid" : "vdevice_index", mig->device_index);
    exposition_label(labels, legacy ? "deviceuuid" : "device_uuid", mig->gpu_uuid);
    if (legacy) {
        exposition_label_number(labels, "instanceid", mig->gpu_instance);
        return;
    }
    exposition_label(labels, "mig_uuid", mig->mig_uuid);
    exposition_label(labels, "profile", mig->profile);
    exposition_label_number(labels, "gpu_instance_id", mig->gpu_instance);
    exposition_label_number(labels, "compute_instance_id", mig->compute_instance);
}

static void write_migs(struct exposition *exposition, const struct pod_names *names, bool legacy)
{
    const struct pod_names_pod *pod;
    struct exposition_labels labels;
    exposition_family(exposition, legacy ? "MigInfo" : "hami_mig_device_info", "gauge",
        legacy ? "Mig device information for container"
               : "MIG runtime identity for a container allocation");
    for (size_t i = 0; (pod = pod_names_at(names, i)) != NULL; i++)
        for (size_t m = 0; pod->labelled && m < pod->mig_count; m++) {
            mig_labels(pod, &pod->migs[m], legacy, &labels);
            if (!labels.cut)
                exposition_sample(exposition, labels.text, ZONE, 1);
        }
}

/* ---- cards ---- */

enum card_figure {
    CARD_USED,
    CARD_UTILIZATION,
    CARD_CONTROLLER,
};

static void write_card(struct exposition *exposition, const char *node, bool legacy,
    enum card_figure figure, const struct card_sample *card)
{
    struct exposition_labels labels = {.length = 0};
    char type[sizeof(card->name) + 8];
    if (figure == CARD_USED ? !card->has_memory : !card->has_utilization)
        return;
    snprintf(type, sizeof(type), "NVIDIA-%s", card->name);
    if (figure != CARD_CONTROLLER)
        exposition_label(&labels, legacy ? "nodeid" : "node", node);
    exposition_label_number(&labels, legacy ? "deviceidx" : "device_index", card->index);
    exposition_label(&labels, legacy ? "deviceuuid" : "device_uuid", card->uuid);
    exposition_label(&labels, legacy ? "devicetype" : "device_type", type);
    exposition_sample(exposition, labels.text, ZONE,
        figure == CARD_USED          ? (double)card->used_bytes
        : figure == CARD_UTILIZATION ? card->utilization_percent
                                     : card->memory_controller_percent);
}

static void write_cards(struct exposition *exposition, const struct monitor_metrics *metrics)
{
    static const struct {
        const char *name, *help;
        enum card_figure figure;
        bool legacy;
    } rows[] = {
        {"hami_host_gpu_memory_used_bytes", "GPU device memory usage in bytes", CARD_USED, false},
        {"hami_host_gpu_utilization_ratio", "GPU core utilization ratio (0-100)", CARD_UTILIZATION,
            false},
        {"hami_host_gpu_memory_controller_utilization_ratio",
            "GPU memory controller utilization ratio (0-100)", CARD_CONTROLLER, false},
        {"HostGPUMemoryUsage", "GPU device memory usage", CARD_USED, true},
        {"HostCoreUtilization", "GPU core utilization", CARD_UTILIZATION, true},
    };
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        if (rows[r].legacy && !metrics->legacy)
            continue;
        exposition_family(exposition, rows[r].name, "gauge", rows[r].help);
        for (size_t c = 0; c < metrics->card_count; c++)
            write_card(
                exposition, metrics->node_name, rows[r].legacy, rows[r].figure, &metrics->cards[c]);
    }
}

/* ---- the monitor itself ---- */

static void write_self(struct exposition *exposition, const struct monitor_metrics *metrics)
{
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"vgpu_monitor_containers", "gauge", "Directories of containers on the node",
            (double)metrics->container_count},
        {"vgpu_monitor_pods_known", "gauge", "1: the node's Pods are known and followed",
            metrics->pods_known},
        {"vgpu_monitor_ticks_total", "counter", "Rounds of the priority feedback",
            (double)metrics->ticks},
        {"vgpu_monitor_removed_directories_total", "counter",
            "Directories of Pods that were gone and have been removed", (double)metrics->removed},
    };
    struct exposition_labels labels = {.length = 0};
    for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
        exposition_family(exposition, rows[r].name, rows[r].type, rows[r].help);
        exposition_sample(exposition, NULL, NULL, rows[r].value);
    }
    exposition_label(&labels, "version", metrics->version);
    exposition_family(exposition, "vgpu_build_info", "gauge", "The monitor's version");
    exposition_sample(exposition, labels.text, NULL, 1);
}

void monitor_metrics_write(struct exposition *exposition, const struct monitor_metrics *metrics)
{
    const struct node_figures *figures = metrics->figures;
    write_cards(exposition, metrics);
    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
        if (!families[i].legacy || metrics->legacy)
            write_family(exposition, figures, &families[i]);
    if (metrics->legacy)
        write_legacy_memory(exposition, figures);
    write_migs(exposition, metrics->names, false);
    if (metrics->legacy)
        write_migs(exposition, metrics->names, true);
    write_kinds(exposition, figures);
    write_infos(exposition, figures);
    write_states(exposition, figures);
    write_self(exposition, metrics);
}
