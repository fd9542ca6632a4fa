/* SPDX-License-Identifier: Apache-2.0 */
/* node/inventory.h, node/topology.h and node/scan.h, with an NVML of the test's own. */
#include "node/inventory.h"
#include "node/scan.h"
#include "node/settings_read.h"
#include "node/topology.h"

#include "check.h"

#include <sys/stat.h>

/* ---- An NVML with cards whose functions fail on demand ---- */

#define CARDS 3
static nvmlReturn_t failing[CARDS + 1]; /* what a card answers; the last one: the count */
static const char *failing_function;    /* only this one does; NULL: all */
static bool mig;
static nvmlGpuTopologyLevel_t levels[CARDS][CARDS];

static unsigned number_of(nvmlDevice_t device)
{
    return (unsigned)(uintptr_t)device - 1;
}

static nvmlReturn_t result_of(nvmlDevice_t device, const char *function)
{
    unsigned card = number_of(device) % 100;
    return failing_function && strcmp(failing_function, function) != 0 ? NVML_SUCCESS
                                                                       : failing[card];
}

static nvmlReturn_t fake_count(unsigned *count)
{
    *count = CARDS;
    return failing[CARDS];
}

static nvmlReturn_t fake_handle(unsigned index, nvmlDevice_t *device)
{
    *device = (nvmlDevice_t)(uintptr_t)(index + 1);
    return result_of(*device, "handle");
}

static nvmlReturn_t fake_uuid(nvmlDevice_t device, char *uuid, unsigned length)
{
    snprintf(uuid, length, "%s-%u", number_of(device) >= 100 ? "MIG" : "GPU", number_of(device));
    return result_of(device, "uuid");
}

static nvmlReturn_t fake_name(nvmlDevice_t device, char *name, unsigned length)
{
    snprintf(name, length, number_of(device) >= 100 ? "NVIDIA A100 MIG 1g.5gb+me" : "A100");
    return result_of(device, "name");
}

static nvmlReturn_t fake_pci(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", 0x3b + number_of(device));
    return result_of(device, "pci");
}

static nvmlReturn_t fake_minor(nvmlDevice_t device, unsigned *minor)
{
    *minor = 7 - number_of(device);
    return result_of(device, "minor");
}

static nvmlReturn_t fake_memory(nvmlDevice_t device, nvmlMemory_t *memory)
{
    memory->total = number_of(device) >= 100 ? 5ull << 30 : 40ull << 30;
    return result_of(device, "memory");
}

static nvmlReturn_t fake_mig_mode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    *current = *pending = mig && number_of(device) == 1;
    return result_of(device, "mode");
}

static nvmlReturn_t fake_mig_count(nvmlDevice_t device, unsigned *count)
{
    *count = 7;
    return result_of(device, "mig count");
}

static nvmlReturn_t fake_mig_handle(nvmlDevice_t device, unsigned index, nvmlDevice_t *instance)
{
    if (index != 0 && index != 3)
        return NVML_ERROR_NOT_FOUND;
    *instance = (nvmlDevice_t)(uintptr_t)(101 + number_of(device) + 100 * index);
    return result_of(device, "mig handle");
}

static nvmlReturn_t fake_instance(nvmlDevice_t device, unsigned *id)
{
    *id = number_of(device) / 100 + 10;
    return result_of(device, "instance");
}

static nvmlReturn_t fake_ancestor(nvmlDevice_t from, nvmlDevice_t to, nvmlGpuTopologyLevel_t *level)
{
    *level = levels[number_of(from)][number_of(to)];
    return NVML_SUCCESS;
}

static const char *fake_text(nvmlReturn_t result)
{
    return result == NVML_ERROR_GPU_IS_LOST ? "GPU is lost" : "an error";
}

static struct nvml fake_nvml = {.nvmlErrorString = fake_text,
    .nvmlDeviceGetCount_v2 = fake_count,
    .nvmlDeviceGetHandleByIndex_v2 = fake_handle,
    .nvmlDeviceGetUUID = fake_uuid,
    .nvmlDeviceGetName = fake_name,
    .nvmlDeviceGetPciInfo_v3 = fake_pci,
    .nvmlDeviceGetMinorNumber = fake_minor,
    .nvmlDeviceGetMemoryInfo = fake_memory,
    .nvmlDeviceGetMigMode = fake_mig_mode,
    .nvmlDeviceGetMaxMigDeviceCount = fake_mig_count,
    .nvmlDeviceGetMigDeviceHandleByIndex = fake_mig_handle,
    .nvmlDeviceGetGpuInstanceId = fake_instance,
    .nvmlDeviceGetComputeInstanceId = fake_instance,
    .nvmlDeviceGetTopologyCommonAncestor = fake_ancestor};

static struct scan *scan_at(const char *root)
{
    char sysfs[256], proc[256];
    snprintf(sysfs, sizeof(sysfs), "%s/sys", root);
    snprintf(proc, sizeof(proc), "%s/proc", root);
    struct scan *scan = scan_make(&fake_nvml, 1, true, &(struct scan_places){sysfs, proc});
    REQUIRE(scan != NULL);
    return scan;
}

/* ---- An inventory over it ---- */

static struct node_settings settings;
static struct inventory *inventory;
static unsigned changes;

static void on_change(void *context)
{
    (void)context;
    changes++;
}

static bool all_healthy(void *context, const char *uuid)
{
    (void)context, (void)uuid;
    return true;
}

static void begin(void)
{
    enum flag_action action;
    char *const argv[] = {(char *)"p", NULL};
    setenv("NODE_NAME", "n1", 1);
    REQUIRE(node_settings_read(&settings, 1, argv, &action, NULL, NULL, NULL) == 0);
    inventory = inventory_create(&settings, on_change, NULL);
    REQUIRE(inventory != NULL);
}

/* One look; what it offers as text: "uuid/replicas/memory/cores/minor ...". */
static const char *offer(void)
{
    static char text[2048];
    size_t count;
    struct scan *scan = scan_at("/nowhere");
    inventory_take_scan(inventory, scan);
    scan_destroy(scan);
    inventory_derive(inventory, all_healthy, NULL);
    const struct node_card *cards = inventory_cards(inventory, &count);
    *text = '\0';
    for (size_t i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s/%u/%lld/%d%s",
            i ? " " : "", cards[i].uuid, cards[i].replicas, (long long)cards[i].scaled_memory_mib,
            cards[i].cores_percent, *cards[i].parent ? cards[i].resource : "");
    return text;
}

static const char *problem_of(const char *uuid)
{
    size_t count;
    const struct scan_card *facts = inventory_facts(inventory, &count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(facts[i].uuid, uuid))
            return facts[i].problem;
    return NULL;
}

TEST("cards are offered with their scaled figures, and told once")
{
    begin();
    settings.config.memory_scaling = 1.5;
    settings.config.cores_scaling = 1.1;
    settings.config.split_count = 4;
    CHECK(!inventory_is_known(inventory));
    CHECK_STR(offer(), "GPU-0/4/61440/110 GPU-1/4/61440/110 GPU-2/4/61440/110");
    CHECK_EQ(changes, 1);
    offer();
    CHECK_EQ(changes, 1);
    const struct node_card *card = inventory_find(inventory, "GPU-2");
    REQUIRE(card != NULL);
    CHECK_STR(card->type, "NVIDIA-A100");
    CHECK_STR(card->bus_id, "00000000:3D:00.0");
    CHECK_EQ(card->node_count, 1);
    CHECK_STR(card->nodes[0], "/dev/nvidia5");
    CHECK_EQ(card->memory_mib, 40960);
    settings.config.split_count = 5;
    offer();
    CHECK_EQ(changes, 2);
}

TEST("a card that is lost stays at its place, with what NVML says")
{
    begin();
    offer();
    failing[1] = NVML_ERROR_GPU_IS_LOST;
    CHECK_STR(offer(), "GPU-0/2/40960/100 GPU-1/2/40960/100 GPU-2/2/40960/100");
    CHECK_STR(problem_of("GPU-1"), "handle: GPU is lost");
    CHECK_STR(problem_of("GPU-0"), "");
    failing[1] = NVML_SUCCESS;
    offer();
    CHECK_STR(problem_of("GPU-1"), "");
}

TEST("each function that fails is a problem of that card alone, and never more")
{
    static const char *const functions[] = {"handle", "uuid", "name", "pci", "minor", "memory"};
    begin();
    offer();
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        failing_function = functions[i];
        failing[2] = NVML_ERROR_UNKNOWN;
        CHECK_STR(offer(), "GPU-0/2/40960/100 GPU-1/2/40960/100 GPU-2/2/40960/100");
        CHECK(problem_of("GPU-2") && *problem_of("GPU-2"));
        CHECK_STR(problem_of("GPU-1"), "");
    }
}

TEST("an NVML that does not count, or lacks functions, loses no card")
{
    begin();
    offer();
    failing[CARDS] = NVML_ERROR_DRIVER_NOT_LOADED;
    CHECK_STR(offer(), "GPU-0/2/40960/100 GPU-1/2/40960/100 GPU-2/2/40960/100");
    CHECK(strstr(problem_of("GPU-0"), "does not count") != NULL);
    failing[CARDS] = NVML_SUCCESS;
    struct nvml empty = {.library = NULL};
    fake_nvml = empty;
    offer();
    CHECK(strstr(problem_of("GPU-0"), "lacks the function") != NULL);
}

TEST("a card without memory to tell is offered with what is configured, or not")
{
    begin();
    failing_function = "memory";
    failing[0] = NVML_ERROR_NOT_SUPPORTED;
    CHECK_STR(offer(), "GPU-1/2/40960/100 GPU-2/2/40960/100");
    settings.config.preconfigured_memory_mib = 1000;
    CHECK_STR(offer(), "GPU-0/2/1000/100 GPU-1/2/40960/100 GPU-2/2/40960/100");
}

TEST("MIG devices are offered by the strategy mixed, unscaled, at their card's place")
{
    begin();
    mig = true;
    settings.config.memory_scaling = 2;
    CHECK_STR(offer(), "GPU-0/2/81920/100 GPU-1/2/81920/100 GPU-2/2/81920/100");
    settings.mig_mixed = true;
    CHECK_STR(offer(), "GPU-0/2/81920/100 MIG-101/1/5120/100nvidia.com/mig-1g.5gb.me "
                       "MIG-401/1/5120/100nvidia.com/mig-1g.5gb.me GPU-2/2/81920/100");
    const struct node_card *card = inventory_find(inventory, "MIG-401");
    REQUIRE(card != NULL);
    CHECK_STR(card->parent, "GPU-1");
    CHECK_EQ(card->mig_index, 3);
    CHECK_EQ(card->gpu_instance, 14);
    /* With the card lost they stay; taken off by an operator they go. */
    failing[1] = NVML_ERROR_GPU_IS_LOST;
    offer();
    CHECK(problem_of("MIG-401") && *problem_of("MIG-401"));
    failing[1] = NVML_SUCCESS;
    mig = false;
    CHECK_STR(offer(), "GPU-0/2/81920/100 GPU-1/2/81920/100 GPU-2/2/81920/100");
}

TEST("filters leave out cards, and their MIG devices")
{
    static char uuids[1][DEVICE_UUID_BYTES] = {"GPU-1"};
    static uint32_t indexes[1] = {2};
    begin();
    mig = settings.mig_mixed = true;
    settings.config.filter_uuids = uuids;
    settings.config.filter_uuid_count = 1;
    settings.config.filter_indexes = indexes;
    settings.config.filter_index_count = 1;
    CHECK_STR(offer(), "GPU-0/2/40960/100");
}

static void put(const char *root, const char *path, const char *text)
{
    char name[512];
    snprintf(name, sizeof(name), "%s/%s", root, path);
    for (char *at = name + strlen(root) + 1; *at; at++) {
        if (*at == '/') {
            *at = '\0';
            mkdir(name, 0755);
            *at = '/';
        }
    }
    FILE *file = fopen(name, "we");
    REQUIRE(file != NULL);
    fputs(text, file);
    fclose(file);
}

TEST("the kernel's files tell NUMA node, capabilities, and that the driver was loaded anew")
{
    char root[] = "/tmp/vgpu-inventory-XXXXXX", command[64];
    REQUIRE(mkdtemp(root) != NULL);
    mig = true;
    put(root, "sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
    put(root, "sys/bus/pci/devices/0000:3c:00.0/numa_node", "-1\n");
    put(root, "sys/bus/pci/devices/0000:3d:00.0/numa_node", "one\n");
    put(root, "proc/sys/kernel/random/boot_id", "0f0e0d0c-0000-4000-8000-000000000001\n");
    put(root, "proc/driver/nvidia/capabilities/gpu6/mig/gi11/access",
        "DeviceFileMinor: 30\nDeviceFileMode: 292\n");
    put(root, "proc/driver/nvidia/capabilities/gpu6/mig/gi11/ci11/access", "DeviceFileMinor: 31\n");
    put(root, "sys/module/nvidia/version", "580\n");
    struct scan *first = scan_at(root);
    CHECK_EQ(first->cards[0].numa, 1);
    CHECK_EQ(first->cards[1].numa, -1);
    CHECK_EQ(first->cards[first->count - 1].numa, -1);
    CHECK_STR(first->cards[2].uuid, "MIG-101");
    CHECK_EQ(first->cards[2].capability_count, 2);
    CHECK_EQ(first->cards[2].capabilities[1], 31);
    CHECK(!strncmp(first->boot, "0f0e0d0c-0000-4000-8000-000000000001/", 37));
    put(root, "sys/module/nvidia.new/version", "580\n");
    char from[64], to[64];
    snprintf(from, sizeof(from), "%s/sys/module/nvidia", root);
    snprintf(to, sizeof(to), "%s/sys/module/nvidia.old", root);
    REQUIRE(rename(from, to) == 0);
    snprintf(to, sizeof(to), "%s/sys/module/nvidia.new", root);
    REQUIRE(rename(to, from) == 0);
    struct scan *second = scan_at(root);
    CHECK(strcmp(first->boot, second->boot) != 0);
    scan_destroy(first);
    scan_destroy(second);
    snprintf(command, sizeof(command), "rm -rf %s", root);
    CHECK_EQ(system(command), 0);
}

TEST("profiles are named by slices and by the share of the card's memory")
{
    static const struct {
        unsigned compute, gpu;
        uint64_t memory_mib, card_mib;
        const char *name;
    } rows[] = {{1, 1, 4864, 40960, "1g.5gb"}, {2, 2, 9856, 40960, "2g.10gb"},
        {1, 2, 9856, 40960, "1c.2g.10gb"}, {7, 7, 40192, 40960, "7g.40gb"},
        {1, 1, 9728, 81920, "1g.10gb"}, {3, 3, 40448, 81920, "3g.40gb"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char profile[NODE_DEVICES_PROFILE_BYTES];
        scan_format_profile(
            rows[i].compute, rows[i].gpu, rows[i].memory_mib, rows[i].card_mib << 20, profile);
        CHECK_STR(profile, rows[i].name);
    }
}

TEST("a connection's score is its PCIe level, and 100 for each NVLink")
{
    static const struct {
        struct scan_link link;
        int32_t score;
    } rows[] = {{{true, NVML_TOPOLOGY_INTERNAL, 0}, 60}, {{true, NVML_TOPOLOGY_SINGLE, 0}, 50},
        {{true, NVML_TOPOLOGY_MULTIPLE, 0}, 40}, {{true, NVML_TOPOLOGY_HOSTBRIDGE, 0}, 30},
        {{true, NVML_TOPOLOGY_NODE, 0}, 20}, {{true, NVML_TOPOLOGY_SYSTEM, 0}, 10},
        {{true, NVML_TOPOLOGY_SYSTEM, 12}, 1210}, {{false, NVML_TOPOLOGY_SINGLE, 4}, 0}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        CHECK_EQ(topology_score(&rows[i].link), rows[i].score);
}

static unsigned asymmetric_pairs;

static void on_asymmetric(
    void *context, const char *a, const char *b, int32_t a_to_b, int32_t b_to_a)
{
    (void)context;
    CHECK_STR(a, "GPU-0");
    CHECK_STR(b, "GPU-2");
    CHECK_EQ(a_to_b, 50);
    CHECK_EQ(b_to_a, 10);
    asymmetric_pairs++;
}

TEST("a pair whose directions differ scores 0 and is told")
{
    struct device_scores scores;
    begin();
    offer();
    for (int from = 0; from < CARDS; from++)
        for (int to = 0; to < CARDS; to++)
            levels[from][to] = NVML_TOPOLOGY_SYSTEM;
    levels[0][2] = NVML_TOPOLOGY_SINGLE;
    struct scan *scan = scan_at("/nowhere");
    REQUIRE(topology_scores(scan, inventory, on_asymmetric, NULL, &scores) == 0);
    CHECK_EQ(asymmetric_pairs, 1);
    CHECK_EQ(device_scores_pair(&scores, "GPU-0", "GPU-2"), 0);
    CHECK_EQ(device_scores_pair(&scores, "GPU-0", "GPU-1"), 10);
    CHECK_EQ(device_scores_pair(&scores, "GPU-2", "GPU-1"), 10);
    CHECK_EQ(scores.count, 3);
    device_scores_finish(&scores);
    scan_destroy(scan);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
