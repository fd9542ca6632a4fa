/* SPDX-License-Identifier: Apache-2.0 */
/* What the scheduler's decision costs: 1,000 nodes of 8 devices that 10,000 Pods use, and one more
 * Pod of several kinds, ROUNDS times each. Without HTTP and JSON. Prints a table of microseconds of
 * the thread's CPU time. usage: filter [ROUNDS] */
#include "schedule/choice.h"
#include "schedule/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NODES 1000
#define DEVICES 8
#define PODS 10000
#define MEMORY_MIB 81920

static double now_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void add_node(struct usage *usage, unsigned number)
{
    char name[32];
    struct node_devices devices = {NULL, 0};
    struct device_scores scores;
    if (device_scores_create(DEVICES, &scores))
        fail("no scores");
    for (unsigned i = 0; i < DEVICES; i++) {
        struct node_device *device = node_devices_add(&devices);
        if (!device)
            fail("no device");
        snprintf(device->id, sizeof(device->id), "GPU-%08x-1111-4222-8333-%012x", number, i);
        strcpy(scores.uuids[i], device->id);
        strcpy(device->type, "NVIDIA H100 80GB HBM3");
        strcpy(device->mode, "hami-core");
        device->index = i;
        device->numa = i / 4;
        device->count = 10;
        device->memory_mib = MEMORY_MIB;
        device->cores_percent = 100;
        device->healthy = true;
        for (unsigned k = 0; k < DEVICES; k++)
            scores.scores[i * DEVICES + k] = i == k ? 0 : (i / 4 == k / 4 ? 1800 : 20);
    }
    const struct usage_node_facts facts = {.devices = &devices, .scores = &scores};
    snprintf(name, sizeof(name), "node-%04u.example", number);
    if (usage_set_node(usage, name, &facts, NULL))
        fail("no node");
    node_devices_finish(&devices);
    device_scores_finish(&scores);
}

static void add_pod(struct usage *usage, unsigned number)
{
    char uid[48], node[32];
    struct claim_share share = {
        .memory_mib = 4096 + number % 7 * 1024, .cores_percent = 5 + number % 3 * 5, .slots = 1};
    unsigned of = number % NODES;
    snprintf(uid, sizeof(uid), "00000000-0000-4000-8000-%012u", number);
    snprintf(node, sizeof(node), "node-%04u.example", of);
    snprintf(share.uuid, sizeof(share.uuid), "GPU-%08x-1111-4222-8333-%012x", of,
        number / NODES % DEVICES);
    share.hash = table_hash(share.uuid);
    const struct claim claim = {.uid = uid,
        .pod_namespace = "default",
        .name = uid,
        .node = node,
        .shares = &share,
        .count = 1,
        .quota = {share.memory_mib, share.cores_percent}};
    if (usage_observe(usage, &claim, false))
        fail("no Pod");
}

struct subject {
    const char *name;
    struct request request;
    const char *policy;
    bool all;
    bool fits;
};

static const struct subject subjects[] = {
    {"one card, 4,000 MiB: the best node", {1, 4000, 101, 30}, "spread", false, true},
    {"the same, all nodes that fit", {1, 4000, 101, 30}, "spread", true, true},
    {"4 cards of 8, binpack, all nodes", {4, 4000, 101, 10}, "binpack", true, true},
    {"4 cards of 8, topology-aware, all nodes", {4, 4000, 101, 10}, "topology-aware", true, true},
    {"nothing fits: too much memory", {1, 90000, 101, 0}, "spread", false, false},
    {"nothing fits: 8 whole cards", {8, 0, 100, 100}, "spread", false, false},
};

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct usage *usage, const char *const *names,
    const struct subject *subject, double *times, unsigned rounds)
{
    struct ask_container container = {ASK_APP, subject->request};
    struct ask ask = {.pod_namespace = "default",
        .name = "p",
        .uid = "p",
        .containers = &container,
        .count = 1,
        .devices = (size_t)subject->request.count};
    struct choice choice = {0};
    const struct wish_defaults defaults = {POLICY_NODE_BINPACK, subject->policy};
    if (wish_read(NULL, &defaults, &ask.wish, NULL))
        fail("no policy");
    for (unsigned i = 0; i < rounds + 10; i++) {
        double start = now_us();
        if (choice_make(&choice, usage, &ask, names, NODES, subject->all, NULL))
            fail("no choice");
        times[i < 10 ? 0 : i - 10] = now_us() - start;
        if (!choice.best == subject->fits)
            fail("another answer than was expected");
    }
    qsort(times, rounds, sizeof(*times), compare_doubles);
    printf("| %s | %.0f | %.0f | %.0f |\n", subject->name, times[rounds / 2],
        times[rounds * 99 / 100], times[rounds - 1]);
    choice_finish(&choice);
    wish_finish(&ask.wish);
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 2000;
    struct usage *usage = usage_create();
    const char **names = calloc(NODES, sizeof(*names));
    double *times = calloc(rounds, sizeof(*times));
    if (!usage || !names || !times || rounds < 100)
        fail("usage: filter [ROUNDS], 100 at least");
    double start = now_us();
    for (unsigned i = 0; i < NODES; i++)
        add_node(usage, i);
    for (unsigned i = 0; i < PODS; i++)
        add_pod(usage, i);
    double pods = now_us() - start;
    for (unsigned i = 0; i < NODES; i++) {
        char name[32];
        snprintf(name, sizeof(name), "node-%04u.example", (i * 617) % NODES);
        names[i] = strdup(name);
    }
    printf("%d nodes, %d devices each, %d Pods: made in %.0f us\n\n", NODES, DEVICES, PODS, pods);
    printf("| what | median us | p99 us | most us |\n| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < sizeof(subjects) / sizeof(subjects[0]); i++)
        measure(usage, names, &subjects[i], times, rounds);
    for (unsigned i = 0; i < NODES; i++)
        free((char *)names[i]);
    free(names);
    free(times);
    usage_destroy(usage);
    return 0;
}
