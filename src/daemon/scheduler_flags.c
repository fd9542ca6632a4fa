/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/scheduler_flags.h"

#define AT(member)                                                                                 \
    offsetof(struct scheduler_flags, member), sizeof(((struct scheduler_flags *)NULL)->member)
#define UNUSED(name, why)                                                                          \
    {                                                                                              \
        name, NULL, FLAG_UNUSED, 0, 0, NULL, NULL, .help = why                                     \
    }
#define SWITCH(name, why)                                                                          \
    {                                                                                              \
        name, NULL, FLAG_SWITCH, 0, 0, NULL, NULL, .help = why                                     \
    }

#define NO_LIMIT "requests are few: they are not throttled"
#define ONE_VENDOR "only NVIDIA's devices are scheduled"
#define LOG "log lines go to stderr; see --debug"

static const struct flag_row rows[] = {
    {"http_bind", NULL, FLAG_TEXT, AT(http_bind), "127.0.0.1:8080", NULL,
        .help = "address and port of /filter, /bind, /webhook, /validate, /healthz and /readyz"},
    {"extender-bind", NULL, FLAG_TEXT, AT(extender_bind), "", NULL,
        .help = "address and port of /filter and /bind alone, which then are not at --http_bind; "
                "whoever reaches them can bind Pods"},
    {"cert_file", NULL, FLAG_PATH, AT(certificate), "", NULL,
        .help = "certificate of that port (PEM), read again as it changes; with --key_file"},
    {"key_file", NULL, FLAG_PATH, AT(key), "", NULL, .help = "its key (PEM)"},
    {"metrics-bind-address", NULL, FLAG_TEXT, AT(metrics_address), ":9395", NULL,
        .help = "address and port of /metrics"},
    {"scheduler-name", NULL, FLAG_TEXT, AT(scheduler_name), "", NULL,
        .help = "name that Pods with devices get as their scheduler's, and source of events"},
    {"node-scheduler-policy", NULL, FLAG_WORD, AT(node_policy), "binpack", "binpack spread",
        .help = "which node a Pod gets"},
    {"gpu-scheduler-policy", NULL, FLAG_TEXT, AT(device_policy), "spread", NULL,
        .help =
            "which devices: binpack, spread, topology-aware, mutex, numa, or several with commas"},
    {"node-label-selector", NULL, FLAG_TEXT, AT(node_selector), "", NULL,
        .help = "labels of the nodes that count, as key=value by commas"},
    {"device-config-file", NULL, FLAG_PATH, AT(config_file), "", NULL,
        .help = "device configuration (YAML); its \"nvidia\" block is read"},
    {"resource-name", NULL, FLAG_TEXT, AT(resource_name), "", NULL,
        .help = "resource of devices, over the configuration's"},
    {"resource-mem", NULL, FLAG_TEXT, AT(resource_memory), "", NULL, .help = "that of memory"},
    {"resource-mem-percentage", NULL, FLAG_TEXT, AT(resource_percentage), "", NULL,
        .help = "that of memory in percent"},
    {"resource-cores", NULL, FLAG_TEXT, AT(resource_cores), "", NULL, .help = "that of cores"},
    {"resource-priority", NULL, FLAG_TEXT, AT(resource_priority), "", NULL,
        .help = "that of priorities"},
    {"default-mem", NULL, FLAG_NUMBER, AT(default_memory), "-1", NULL,
        .help =
            "MiB where a container names none, 0: the whole card; -1: as the configuration has it"},
    {"default-cores", NULL, FLAG_NUMBER, AT(default_cores), "-1", NULL,
        .help = "percent of the cores, likewise; 0: no limit"},
    {"default-gpu", NULL, FLAG_NUMBER, AT(default_count), "-1", NULL,
        .help = "devices where a container names only memory or cores, likewise"},
    {"overwrite-env", NULL, FLAG_WORD, AT(overwrite_env), "config", "config true false",
        .help =
            "whether containers without devices get NVIDIA_VISIBLE_DEVICES=none; config: as the "
            "configuration has it"},
    {"node-lock-timeout", "HAMI_NODELOCK_EXPIRE", FLAG_DURATION, AT(lock_expiry_ns), "5m", NULL,
        .help = "age from which a node's lock may be taken over"},
    {"node-lock-retry-timeout", NULL, FLAG_DURATION, AT(lock_retry_ns), "28s", NULL,
        .help =
            "for how long the bind of a PodGroup's Pod waits for a node's lock; less than the time "
            "that "
            "kube-scheduler gives its extender"},
    {"allocate-timeout", NULL, FLAG_DURATION, AT(flight_ns), "30s", NULL,
        .help =
            "for how long after its binding a Pod that its node's plugin has not served keeps Pods "
            "that "
            "ask for something else from that node"},
    {"force-overwrite-default-scheduler", NULL, FLAG_BOOL, AT(force_overwrite), "true", NULL,
        .help = "Pods with the name default-scheduler are ours too"},
    {"legacy-metrics", NULL, FLAG_BOOL, AT(legacy_metrics), "false", NULL,
        .help = "also the metrics by the names that HAMi had before 2.8"},
    {"compat-filter-patch", NULL, FLAG_BOOL, AT(filter_patch), "false", NULL,
        .help = "write a Pod's annotations at the filter, as HAMi does, not only with its binding"},
    {"filter-all-nodes", NULL, FLAG_BOOL, AT(all_nodes), "false", NULL,
        .help =
            "answer a filter with all nodes that fit, so that kube-scheduler's own scores count"},
    {"proof-key-file", NULL, FLAG_PATH, AT(proof_key_file), "", NULL,
        .help = "key of at least 16 bytes that proofs of assignments are made with"},
    {"leader-elect", NULL, FLAG_BOOL, AT(leader_elect), "false", NULL,
        .help = "only the scheduler beside the kube-scheduler that holds the Lease acts"},
    {"leader-elect-resource-name", NULL, FLAG_TEXT, AT(lease_name), "", NULL,
        .help = "the Lease's name"},
    {"leader-elect-resource-namespace", "POD_NAMESPACE", FLAG_TEXT, AT(lease_namespace), "", NULL,
        .help = "the Lease's namespace"},
    {"pod-name", "POD_NAME", FLAG_TEXT, AT(identity), "", NULL,
        .help = "with which the name of the Lease's holder begins"},
    {"pod-namespace", "POD_NAMESPACE", FLAG_TEXT, AT(pod_namespace), "", NULL,
        .help = "namespace of that Pod, which gets the label hami.io/scheduler-role, leader or "
                "follower"},
    {"owners", NULL, FLAG_TEXT, AT(owners), "", NULL,
        .help = "users by commas that may write the annotations of devices and bindings, as "
                "system:serviceaccount:NAMESPACE:NAME: this scheduler's and the device plugin's"},
    {"debug", NULL, FLAG_BOOL, AT(debug), "false", NULL, .help = "more log lines"},
    UNUSED("kube-qps", NO_LIMIT),
    UNUSED("kube-burst", NO_LIMIT),
    UNUSED("kube-timeout", "requests have time limits of their own"),
    SWITCH("profiling", "there is no profile to be had here; use perf"),
    SWITCH("enable-ascend", ONE_VENDOR),
    SWITCH("enable-iluvatar", ONE_VENDOR),
    UNUSED("cambricon-mlu-name", ONE_VENDOR),
    UNUSED("cambricon-mlu-memory", ONE_VENDOR),
    UNUSED("cambricon-mlu-cores", ONE_VENDOR),
    UNUSED("dcu-name", ONE_VENDOR),
    UNUSED("dcu-memory", ONE_VENDOR),
    UNUSED("dcu-cores", ONE_VENDOR),
    UNUSED("hcu-name", ONE_VENDOR),
    UNUSED("hcu-memory", ONE_VENDOR),
    UNUSED("hcu-cores", ONE_VENDOR),
    UNUSED("iluvatar-name", ONE_VENDOR),
    UNUSED("iluvatar-memory", ONE_VENDOR),
    UNUSED("iluvatar-cores", ONE_VENDOR),
    UNUSED("mthreads-name", ONE_VENDOR),
    UNUSED("mthreads-memory", ONE_VENDOR),
    UNUSED("mthreads-cores", ONE_VENDOR),
    UNUSED("metax-name", ONE_VENDOR),
    UNUSED("metax-vcount", ONE_VENDOR),
    UNUSED("metax-vcore", ONE_VENDOR),
    UNUSED("metax-vmemory", ONE_VENDOR),
    UNUSED("ascend-name", ONE_VENDOR),
    UNUSED("ascend-memory", ONE_VENDOR),
    UNUSED("ascend310p-name", ONE_VENDOR),
    UNUSED("ascend310p-memory", ONE_VENDOR),
    SWITCH("sgpu-topology-aware", ONE_VENDOR),
    UNUSED("v", LOG),
    UNUSED("vmodule", LOG),
    SWITCH("logtostderr", LOG),
    SWITCH("alsologtostderr", LOG),
    UNUSED("stderrthreshold", LOG),
    UNUSED("log_dir", LOG),
    UNUSED("log_file", LOG),
    UNUSED("log_file_max_size", LOG),
    UNUSED("log_backtrace_at", LOG),
    SWITCH("add_dir_header", LOG),
    SWITCH("one_output", LOG),
    SWITCH("skip_headers", LOG),
    SWITCH("skip_log_headers", LOG),
};

const struct flag_table scheduler_flag_table = {
    "usage: vgpu-scheduler [FLAG]...\n\n"
    "Chooses nodes and devices for Pods that ask for GPUs: kube-scheduler's extender.\n\n",
    NULL, rows, sizeof(rows) / sizeof(rows[0])};
