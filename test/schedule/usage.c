/* SPDX-License-Identifier: Apache-2.0 */
/* The life of reservations, and that what devices hold is always the sum of what Pods hold. */
#include "check.h"

#include "schedule/table.h"
#include "schedule/usage.h"

#include <errno.h>

static struct usage *make_usage(size_t nodes)
{
    struct usage *usage = usage_create();
    REQUIRE(usage);
    for (size_t i = 0; i < nodes; i++) {
        char name[16];
        struct node_devices devices = {NULL, 0};
        for (unsigned k = 0; k < 4; k++) {
            struct node_device *device = node_devices_add(&devices);
            snprintf(device->id, sizeof(device->id), "GPU-%u", k);
            snprintf(device->type, sizeof(device->type), "NVIDIA A10");
            device->index = k;
            device->count = 10;
            device->memory_mib = 1000;
            device->cores_percent = 100;
        }
        const struct usage_node_facts facts = {.devices = &devices};
        snprintf(name, sizeof(name), "n%zu", i);
        CHECK_EQ(usage_set_node(usage, name, &facts, NULL), 0);
        node_devices_finish(&devices);
    }
    return usage;
}

struct small_claim {
    struct claim claim;
    struct claim_share shares[2];
    char uid[16], node[16];
};

static void make_claim(
    struct small_claim *small, unsigned uid, unsigned node, unsigned device, int64_t memory)
{
    *small = (struct small_claim){0};
    snprintf(small->uid, sizeof(small->uid), "u%u", uid);
    snprintf(small->node, sizeof(small->node), "n%u", node);
    for (unsigned i = 0; i < 2; i++) {
        snprintf(small->shares[i].uuid, sizeof(small->shares[i].uuid), "GPU-%u", (device + i) % 4);
        small->shares[i].hash = table_hash(small->shares[i].uuid);
        small->shares[i].memory_mib = memory;
        small->shares[i].cores_percent = 1;
        small->shares[i].slots = 1;
    }
    small->claim = (struct claim){.uid = small->uid,
        .bound = true,
        .pod_namespace = "default",
        .name = small->uid,
        .node = small->node,
        .shares = small->shares,
        .count = 2,
        .quota = {2 * memory, 2}};
}

static int64_t used(const struct usage *usage, const char *node, size_t device)
{
    const struct usage_node *found = usage_find_node(usage, node);
    return found ? found->devices[device].used.memory : -1;
}

static int64_t quota_used(const struct usage *usage)
{
    const struct quota_namespace *entry = quotas_find(usage->quotas, "default");
    return entry ? entry->used.memory : 0;
}

TEST("a reservation holds, is replaced by the Pod's next one, and ends at its deadline")
{
    struct usage *usage = make_usage(2);
    struct small_claim claim;
    uint64_t generation = 0;
    make_claim(&claim, 1, 0, 0, 100);
    CHECK_EQ(usage_reserve(usage, &claim.claim, 10, &generation), 0);
    CHECK_EQ(used(usage, "n0", 0), 100);
    make_claim(&claim, 1, 1, 0, 70);
    CHECK_EQ(usage_reserve(usage, &claim.claim, 20, &generation), 0);
    CHECK_EQ(used(usage, "n0", 0), 0);
    CHECK_EQ(used(usage, "n1", 1), 70);
    CHECK_EQ(quota_used(usage), 140);
    CHECK_EQ(usage_expire(usage, 19), 0);
    CHECK_EQ(usage_expire(usage, 20), 1);
    CHECK_EQ(used(usage, "n1", 1), 0);
    CHECK_EQ(quota_used(usage), 0);
    usage_destroy(usage);
}

TEST("a binding does not expire, and is overdue when the watch does not show it")
{
    struct usage *usage = make_usage(1);
    struct small_claim claim;
    uint64_t generation = 0;
    make_claim(&claim, 1, 0, 0, 100);
    CHECK_EQ(usage_reserve(usage, &claim.claim, 10, &generation), 0);
    CHECK(!usage_bind(usage, "u1", generation + 1, 30));
    CHECK(usage_bind(usage, "u1", generation, 30));
    CHECK(!usage_bind(usage, "u1", generation, 30));
    CHECK_EQ(usage_expire(usage, 1000), 0);
    CHECK(!usage_find_overdue(usage, 29));
    CHECK(usage_find_overdue(usage, 30) == usage_find_pod(usage, "u1"));
    CHECK_EQ(usage_reserve(usage, &claim.claim, 99, &generation), -EEXIST);
    usage_cancel(usage, "u1", generation);
    CHECK_EQ(used(usage, "n0", 0), 0);
    usage_destroy(usage);
}

TEST("a reservation whose binding is under way is neither replaced nor expires")
{
    struct usage *usage = make_usage(1);
    struct small_claim claim;
    uint64_t generation = 0, other = 0;
    make_claim(&claim, 1, 0, 0, 100);
    CHECK_EQ(usage_reserve(usage, &claim.claim, 10, &generation), 0);
    CHECK(!usage_hold(usage, "u1", generation + 1));
    CHECK(usage_hold(usage, "u1", generation));
    CHECK(!usage_hold(usage, "u1", generation));
    CHECK_EQ(usage_expire(usage, 1000), 0);
    CHECK_EQ(usage_reserve(usage, &claim.claim, 99, &other), -EEXIST);
    usage_let(usage, "u1", generation);
    CHECK(!usage_find_overdue(usage, 1000));
    CHECK_EQ(usage_expire(usage, 1000), 1);
    CHECK_EQ(usage_reserve(usage, &claim.claim, 10, &generation), 0);
    CHECK(usage_hold(usage, "u1", generation));
    CHECK(usage_bind(usage, "u1", generation, 30));
    usage_let(usage, "u1", generation);
    CHECK_EQ(usage_find_pod(usage, "u1")->state, USAGE_BOUND);
    usage_destroy(usage);
}

TEST("what may yet be bound is carried into a state that is read anew")
{
    struct usage *from = make_usage(1), *usage = make_usage(1);
    struct small_claim claim;
    uint64_t generation = 0;
    for (unsigned uid = 1; uid <= 3; uid++) {
        make_claim(&claim, uid, 0, 0, 100);
        CHECK_EQ(usage_reserve(from, &claim.claim, 10, &generation), 0);
        CHECK(uid == 1 || usage_hold(from, claim.claim.uid, generation));
    }
    CHECK(usage_bind(from, "u3", generation, 20));
    CHECK_EQ(usage_carry(usage, from, 50), 0);
    CHECK(!usage_find_pod(usage, "u1"));
    CHECK_EQ(used(usage, "n0", 0), 200);
    CHECK_EQ(quota_used(usage), 400);
    CHECK(!usage_find_overdue(usage, 49));
    CHECK(usage_find_overdue(usage, 50));
    make_claim(&claim, 2, 0, 1, 70);
    claim.claim.bound = true;
    CHECK_EQ(usage_observe(usage, &claim.claim, false), 0);
    CHECK_EQ(used(usage, "n0", 0), 100);
    usage_destroy(from);
    usage_destroy(usage);
}

TEST("devices that are only named are given back at their deadline")
{
    struct usage *usage = make_usage(1);
    struct small_claim claim;
    make_claim(&claim, 1, 0, 0, 100);
    claim.claim.bound = false;
    claim.claim.deadline_ns = 30;
    CHECK_EQ(usage_observe(usage, &claim.claim, false), 0);
    CHECK_EQ(usage_expire(usage, 29), 0);
    CHECK_EQ(used(usage, "n0", 0), 100);
    CHECK_EQ(usage_expire(usage, 30), 1);
    CHECK_EQ(used(usage, "n0", 0), 0);
    claim.claim.bound = true;
    CHECK_EQ(usage_observe(usage, &claim.claim, false), 0);
    CHECK_EQ(usage_expire(usage, 30), 0);
    CHECK_EQ(used(usage, "n0", 0), 100);
    usage_destroy(usage);
}

TEST("a cancellation of an earlier generation changes nothing")
{
    struct usage *usage = make_usage(1);
    struct small_claim claim;
    uint64_t first = 0, second = 0;
    make_claim(&claim, 1, 0, 0, 100);
    CHECK_EQ(usage_reserve(usage, &claim.claim, 10, &first), 0);
    CHECK_EQ(usage_reserve(usage, &claim.claim, 10, &second), 0);
    usage_cancel(usage, "u1", first);
    CHECK_EQ(used(usage, "n0", 0), 100);
    usage_cancel(usage, "u1", second);
    CHECK_EQ(used(usage, "n0", 0), 0);
    usage_destroy(usage);
}

TEST("an old state of the Pod does not end its reservation, its end does")
{
    struct usage *usage = make_usage(1);
    struct small_claim claim, nothing;
    uint64_t generation = 0;
    make_claim(&claim, 1, 0, 0, 100);
    make_claim(&nothing, 1, 0, 0, 0);
    nothing.claim.count = 0;
    nothing.claim.bound = false;
    CHECK_EQ(usage_reserve(usage, &claim.claim, 10, &generation), 0);
    CHECK_EQ(usage_observe(usage, &nothing.claim, false), 0);
    CHECK_EQ(used(usage, "n0", 0), 100);
    CHECK(usage_bind(usage, "u1", generation, 1));
    CHECK_EQ(usage_observe(usage, &nothing.claim, false), 0);
    CHECK_EQ(used(usage, "n0", 0), 100);
    CHECK_EQ(usage_observe(usage, &nothing.claim, true), 0);
    CHECK_EQ(used(usage, "n0", 0), 0);
    usage_destroy(usage);
}

TEST("a Pod that is bound without devices holds none, whatever was reserved")
{
    struct usage *usage = make_usage(1);
    struct small_claim claim, nothing;
    uint64_t generation = 0;
    for (unsigned state = 0; state < 3; state++) {
        make_claim(&claim, 1, 0, 0, 100);
        make_claim(&nothing, 1, 0, 0, 0);
        nothing.claim.count = 0;
        nothing.claim.bound = true;
        CHECK_EQ(usage_reserve(usage, &claim.claim, 10, &generation), 0);
        CHECK(state != 1 || usage_hold(usage, "u1", generation));
        CHECK(state != 2 || usage_bind(usage, "u1", generation, 1));
        CHECK_EQ(usage_observe(usage, &nothing.claim, false), 0);
        CHECK_EQ(used(usage, "n0", 0), 0);
        CHECK(!usage_find_pod(usage, "u1"));
    }
    usage_destroy(usage);
}

TEST("what the watch shows takes the reservation's place, and an observed Pod may give up")
{
    struct usage *usage = make_usage(2);
    struct small_claim claim;
    uint64_t generation = 0;
    make_claim(&claim, 1, 0, 0, 100);
    CHECK_EQ(usage_reserve(usage, &claim.claim, 10, &generation), 0);
    make_claim(&claim, 1, 1, 0, 55);
    CHECK_EQ(usage_observe(usage, &claim.claim, false), 0);
    CHECK_EQ(used(usage, "n0", 0), 0);
    CHECK_EQ(used(usage, "n1", 0), 55);
    CHECK_EQ(usage_expire(usage, 1000), 0);
    usage_cancel(usage, "u1", generation);
    CHECK_EQ(used(usage, "n1", 0), 55);
    claim.claim.count = 0;
    CHECK_EQ(usage_observe(usage, &claim.claim, false), 0);
    CHECK_EQ(used(usage, "n1", 0), 0);
    usage_destroy(usage);
}

TEST("annotations of a Pod that is not bound count, but change no reservation")
{
    struct usage *usage = make_usage(2);
    struct small_claim claim;
    uint64_t generation = 0;
    make_claim(&claim, 1, 0, 0, 100);
    claim.claim.bound = false;
    CHECK_EQ(usage_observe(usage, &claim.claim, false), 0);
    CHECK_EQ(used(usage, "n0", 0), 100);
    make_claim(&claim, 1, 1, 0, 40);
    claim.claim.devices = "text";
    CHECK_EQ(usage_reserve(usage, &claim.claim, 10, &generation), 0);
    CHECK_STR(usage_find_pod(usage, "u1")->devices, "text");
    make_claim(&claim, 1, 0, 0, 100);
    claim.claim.bound = false;
    CHECK_EQ(usage_observe(usage, &claim.claim, false), 0);
    CHECK_EQ(used(usage, "n0", 0), 0);
    CHECK_EQ(used(usage, "n1", 0), 40);
    usage_destroy(usage);
}

TEST("once its init containers are done, a Pod's claim does not grow again")
{
    struct usage *usage = make_usage(1);
    struct small_claim claim;
    make_claim(&claim, 1, 0, 0, 100);
    CHECK_EQ(usage_observe(usage, &claim.claim, false), 0);
    make_claim(&claim, 1, 0, 0, 30);
    claim.claim.init_done = true;
    CHECK_EQ(usage_observe(usage, &claim.claim, false), 0);
    CHECK_EQ(used(usage, "n0", 0), 30);
    make_claim(&claim, 1, 0, 0, 100);
    CHECK_EQ(usage_observe(usage, &claim.claim, false), 0);
    CHECK_EQ(used(usage, "n0", 0), 30);
    usage_destroy(usage);
}

TEST("a node that comes late, or back, has what its Pods hold")
{
    struct usage *usage = make_usage(1);
    struct small_claim claim;
    make_claim(&claim, 1, 0, 0, 100);
    CHECK_EQ(usage_observe(usage, &claim.claim, false), 0);
    usage_remove_node(usage, "n0");
    CHECK(!usage_find_node(usage, "n0"));
    CHECK_EQ(usage->registered, 0);
    make_claim(&claim, 2, 0, 0, 11);
    CHECK_EQ(usage_observe(usage, &claim.claim, false), 0);
    struct node_devices devices = {NULL, 0};
    struct node_device *device = node_devices_add(&devices);
    snprintf(device->id, sizeof(device->id), "GPU-1");
    const struct usage_node_facts facts = {.devices = &devices};
    CHECK_EQ(usage_set_node(usage, "n0", &facts, NULL), 0);
    node_devices_finish(&devices);
    CHECK_EQ(used(usage, "n0", 0), 111);
    usage_remove_pod(usage, "u1");
    CHECK_EQ(used(usage, "n0", 0), 11);
    usage_remove_node(usage, "n0");
    usage_remove_pod(usage, "u2");
    CHECK_EQ(usage->nodes->count, 0);
    CHECK_EQ(usage->pods->count, 0);
    usage_destroy(usage);
}

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 12;
}

/* The sum over all Pods, from the table alone. */
static void check_sums(const struct usage *usage)
{
    int64_t sums[8][4] = {{0}}, quota = 0;
    const struct usage_pod *pod;
    for (size_t cursor = 0; (pod = table_next(usage->pods, &cursor));) {
        quota += pod->quota.memory;
        for (size_t i = 0; i < pod->count; i++)
            sums[atoi(pod->node->name + 1)][atoi(pod->shares[i].share.uuid + 4)] +=
                pod->shares[i].share.memory_mib;
    }
    CHECK_EQ(quota_used(usage), quota);
    for (int node = 0; node < 8; node++) {
        char name[16];
        int64_t total = 0;
        snprintf(name, sizeof(name), "n%d", node);
        const struct usage_node *found = usage_find_node(usage, name);
        for (int device = 0; found && device < 4; device++) {
            CHECK_EQ(found->devices[device].used.memory, sums[node][device]);
            total += sums[node][device];
        }
        if (found)
            CHECK_EQ(found->used.memory, total);
    }
}

TEST("after any order of events each device holds what the Pods hold")
{
    struct usage *usage = make_usage(8), *fresh = make_usage(1);
    unsigned state = 7;
    uint64_t generations[64] = {0};
    for (int step = 0; step < 20000; step++) {
        unsigned uid = next_random(&state) % 64, act = next_random(&state) % 8;
        struct small_claim claim;
        make_claim(&claim, uid, next_random(&state) % 8, next_random(&state) % 4,
            next_random(&state) % 1000);
        if (act < 2)
            (void)!usage_reserve(usage, &claim.claim, step + 50, &generations[uid]);
        else if (act == 2)
            usage_bind(usage, claim.uid, generations[uid], step);
        else if (act == 3)
            (void)!usage_observe(usage, &claim.claim, false);
        else if (act == 4)
            usage_remove_pod(usage, claim.uid);
        else if (act == 5)
            usage_cancel(usage, claim.uid, generations[uid]);
        else if (act == 6)
            usage_expire(usage, step);
        else if (step % 5 == 0)
            usage_remove_node(usage, claim.node);
        if (step % 64 == 0)
            check_sums(usage);
    }
    usage_destroy(usage);
    usage_destroy(fresh);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
