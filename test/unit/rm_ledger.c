/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of resource-manager objects. */
#include "rm/rm_ledger.h"

#include "abi/rm.h"
#include "check.h"

#include <pthread.h>

#define CLIENT 0xc1d00001u
#define CLIENT_2 0xc1d00002u
#define DEVICE 0x10u
#define SUBDEVICE 0x11u
#define SPACE 0x20u
#define CLASS_PLAIN 0x90f1u
#define MIB (1ull << 20)

struct seen {
    unsigned count;
    uint64_t bytes;
    struct rm_freed last;
};

static void see(const struct rm_freed *memory, void *context)
{
    struct seen *seen = context;
    seen->count++;
    seen->bytes += memory->bytes;
    seen->last = *memory;
}

static void ledger_begin(void)
{
    rm_ledger_reset();
    REQUIRE(rm_ledger_add_client(CLIENT) == 0);
    REQUIRE(rm_ledger_add(CLIENT, CLIENT, DEVICE, RM_CLASS_DEVICE, 0, 0, ACCOUNT_BUFFER) == 0);
    REQUIRE(
        rm_ledger_add(CLIENT, DEVICE, SUBDEVICE, RM_CLASS_SUBDEVICE, 0, 0, ACCOUNT_BUFFER) == 0);
}

static void add_memory(uint32_t client, uint32_t parent, uint32_t object, uint64_t bytes)
{
    REQUIRE(rm_ledger_add(
                client, parent, object, RM_CLASS_MEMORY_LOCAL, bytes, 3, ACCOUNT_MODULE) == 0);
}

static uint64_t bytes_held(void)
{
    uint64_t version;
    return rm_ledger_bytes(3, &version);
}

/* Frees as the driver would; what was seen to go. */
static struct seen free_object(uint32_t client, uint32_t object)
{
    struct seen seen = {0};
    struct rm_subtree *subtree = rm_ledger_detach(client, object);
    if (CHECK(subtree != NULL))
        rm_ledger_drop(subtree, see, &seen);
    return seen;
}

static unsigned exported_device;

TEST("memory counts from when it is added until it is freed")
{
    ledger_begin();
    add_memory(CLIENT, DEVICE, 0x100, 2 * MIB);
    add_memory(CLIENT, DEVICE, 0x101, 4 * MIB);
    CHECK_EQ(bytes_held(), 6 * MIB);
    struct seen seen = free_object(CLIENT, 0x100);
    CHECK_EQ(seen.count, 1);
    CHECK_EQ(seen.last.bytes, 2 * MIB);
    CHECK_EQ(seen.last.device, 3);
    CHECK_EQ(seen.last.kind, ACCOUNT_MODULE);
    CHECK(!seen.last.exported);
    CHECK_EQ(seen.last.fds[0].fd, -1);
    CHECK_EQ(bytes_held(), 4 * MIB);
    CHECK(rm_ledger_detach(CLIENT, 0x100) == NULL);
}

TEST("freeing an object frees all below it, and nothing beside it")
{
    ledger_begin();
    REQUIRE(rm_ledger_add(CLIENT, DEVICE, SPACE, CLASS_PLAIN, 0, 0, ACCOUNT_BUFFER) == 0);
    for (uint32_t i = 0; i < 100; i++)
        add_memory(CLIENT, i % 2 ? SPACE : DEVICE, 0x100 + i, MIB);
    CHECK_EQ(free_object(CLIENT, SPACE).bytes, 50 * MIB);
    CHECK_EQ(bytes_held(), 50 * MIB);
    CHECK(rm_ledger_detach(CLIENT, 0x101) == NULL);
    CHECK_EQ(free_object(CLIENT, CLIENT).count, 50);
    CHECK_EQ(bytes_held(), 0);
    CHECK(!rm_ledger_knows_client(CLIENT));
}

TEST("a chain of 10,000 objects is freed without recursion, deepest first or not")
{
    ledger_begin();
    for (uint32_t i = 0; i < 10000; i++)
        add_memory(CLIENT, i ? 0x100 + i - 1 : DEVICE, 0x100 + i, 1);
    CHECK_EQ(free_object(CLIENT, 0x100 + 5000).count, 5000);
    CHECK_EQ(free_object(CLIENT, CLIENT).count, 5000);
    CHECK_EQ(bytes_held(), 0);
}

TEST("an object whose parent is not known goes with its client")
{
    ledger_begin();
    add_memory(CLIENT, 0xdead, 0x100, MIB);
    CHECK_EQ(free_object(CLIENT, CLIENT).bytes, MIB);
}

TEST("one client's objects are not another's")
{
    ledger_begin();
    REQUIRE(rm_ledger_add_client(CLIENT_2) == 0);
    add_memory(CLIENT, CLIENT, 0x100, MIB);
    add_memory(CLIENT_2, CLIENT_2, 0x100, 2 * MIB);
    CHECK_EQ(free_object(CLIENT, CLIENT).bytes, MIB);
    CHECK_EQ(bytes_held(), 2 * MIB);
    CHECK_EQ(free_object(CLIENT_2, 0x100).bytes, 2 * MIB);
}

TEST("memory with several handles goes with the last of them")
{
    ledger_begin();
    REQUIRE(rm_ledger_add_client(CLIENT_2) == 0);
    add_memory(CLIENT, DEVICE, 0x100, MIB);
    CHECK(rm_ledger_add_duplicate(CLIENT, DEVICE, 0x101, CLIENT, 0x100));
    CHECK(rm_ledger_add_duplicate(CLIENT_2, CLIENT_2, 0x100, CLIENT, 0x101));
    CHECK_EQ(bytes_held(), MIB);
    CHECK_EQ(free_object(CLIENT, 0x100).count, 0);
    CHECK_EQ(free_object(CLIENT, CLIENT).count, 0);
    CHECK_EQ(bytes_held(), MIB);
    CHECK_EQ(free_object(CLIENT_2, CLIENT_2).bytes, MIB);
    CHECK_EQ(bytes_held(), 0);
}

TEST("both handles of a memory below one parent free it once")
{
    ledger_begin();
    add_memory(CLIENT, DEVICE, 0x100, MIB);
    CHECK(rm_ledger_add_duplicate(CLIENT, 0x100, 0x101, CLIENT, 0x100));
    struct seen seen = free_object(CLIENT, DEVICE);
    CHECK_EQ(seen.count, 1);
    CHECK_EQ(seen.bytes, MIB);
}

TEST("a duplicate of what is not known here is another process's memory")
{
    ledger_begin();
    CHECK(!rm_ledger_add_duplicate(CLIENT, DEVICE, 0x101, 0xc1d0ffff, 0x100));
    CHECK_EQ(rm_ledger_imports(), 0);
}

TEST("a duplicate of an imported memory is another process's memory too")
{
    ledger_begin();
    rm_ledger_add_import(CLIENT, DEVICE, 0x100);
    CHECK_EQ(rm_ledger_imports(), 1);
    CHECK(!rm_ledger_add_duplicate(CLIENT, DEVICE, 0x101, CLIENT, 0x100));
}

TEST("imports count while they have a handle")
{
    ledger_begin();
    rm_ledger_add_import(CLIENT, DEVICE, 0x100);
    rm_ledger_add_import(CLIENT, DEVICE, 0x101);
    CHECK_EQ(rm_ledger_imports(), 2);
    CHECK_EQ(free_object(CLIENT, 0x100).count, 0);
    CHECK_EQ(rm_ledger_imports(), 1);
    free_object(CLIENT, CLIENT);
    CHECK_EQ(rm_ledger_imports(), 0);
    CHECK_EQ(bytes_held(), 0);
}

TEST("what the driver refused to free is as it was before")
{
    ledger_begin();
    REQUIRE(rm_ledger_add(CLIENT, DEVICE, SPACE, CLASS_PLAIN, 0, 0, ACCOUNT_BUFFER) == 0);
    add_memory(CLIENT, SPACE, 0x100, MIB);
    add_memory(CLIENT, SPACE, 0x101, MIB);
    CHECK_EQ(rm_ledger_device_handle(CLIENT, 0x100), DEVICE);
    struct rm_subtree *subtree = rm_ledger_detach(CLIENT, SPACE);
    REQUIRE(subtree);
    CHECK_EQ(rm_ledger_device_handle(CLIENT, 0x100), 0);
    CHECK_EQ(bytes_held(), 2 * MIB);
    rm_ledger_attach(subtree);
    CHECK_EQ(rm_ledger_device_handle(CLIENT, 0x100), DEVICE);
    CHECK_EQ(rm_ledger_device_handle(CLIENT, SPACE), DEVICE);
    CHECK_EQ(free_object(CLIENT, 0x101).bytes, MIB);
    CHECK_EQ(free_object(CLIENT, DEVICE).bytes, MIB);
    CHECK_EQ(bytes_held(), 0);
}

TEST("a handle that the kernel gives out again while its last owner is freed is another object")
{
    ledger_begin();
    add_memory(CLIENT, DEVICE, 0x100, MIB);
    struct rm_subtree *subtree = rm_ledger_detach(CLIENT, 0x100);
    add_memory(CLIENT, DEVICE, 0x100, 8 * MIB);
    struct seen seen = {0};
    rm_ledger_drop(subtree, see, &seen);
    CHECK_EQ(seen.bytes, MIB);
    CHECK_EQ(bytes_held(), 8 * MIB);
    CHECK_EQ(free_object(CLIENT, 0x100).bytes, 8 * MIB);
}

TEST("exports are marked, and the mark is seen when the memory goes")
{
    ledger_begin();
    add_memory(CLIENT, DEVICE, 0x100, MIB);
    add_memory(CLIENT, DEVICE, 0x101, MIB);
    (void)rm_ledger_mark_exported(CLIENT, 0x100, (struct rm_export_fd){.fd = 37}, &exported_device);
    (void)rm_ledger_mark_exported(CLIENT, 0x101, (struct rm_export_fd){.fd = -1}, &exported_device);
    (void)rm_ledger_mark_exported(
        CLIENT, DEVICE, (struct rm_export_fd){.fd = 38}, &exported_device);
    (void)rm_ledger_mark_exported(
        CLIENT, 0xdead, (struct rm_export_fd){.fd = 39}, &exported_device);
    struct seen seen = free_object(CLIENT, 0x100);
    CHECK(seen.last.exported);
    CHECK_EQ(seen.last.fds[0].fd, 37);
    seen = free_object(CLIENT, 0x101);
    CHECK(seen.last.exported);
    CHECK_EQ(seen.last.fds[0].fd, -1);
}

TEST("a dma-buf holds memory and lets no process import it")
{
    ledger_begin();
    add_memory(CLIENT, DEVICE, 0x100, MIB);
    struct rm_export_fd dmabuf = {.fd = 37, .is_dmabuf = true}, plain = {.fd = 38};
    CHECK_EQ(rm_ledger_mark_exported(CLIENT, 0x100, dmabuf, &exported_device), 0);
    CHECK_EQ(rm_ledger_mark_exported(CLIENT, 0x100, plain, &exported_device), MIB);
    CHECK_EQ(rm_ledger_mark_exported(CLIENT, 0x100, plain, &exported_device), 0);
    CHECK(free_object(CLIENT, 0x100).last.importable);
    add_memory(CLIENT, DEVICE, 0x101, MIB);
    CHECK_EQ(rm_ledger_mark_exported(CLIENT, 0x101, dmabuf, &exported_device), 0);
    struct rm_freed freed = free_object(CLIENT, 0x101).last;
    CHECK(freed.exported && !freed.importable);
}

TEST("an export by one handle marks the memory under its other handles")
{
    ledger_begin();
    add_memory(CLIENT, DEVICE, 0x100, MIB);
    CHECK(rm_ledger_add_duplicate(CLIENT, DEVICE, 0x101, CLIENT, 0x100));
    (void)rm_ledger_mark_exported(CLIENT, 0x100, (struct rm_export_fd){.fd = 37}, &exported_device);
    free_object(CLIENT, 0x100);
    struct seen seen = free_object(CLIENT, 0x101);
    CHECK(seen.last.exported);
    CHECK_EQ(seen.last.fds[0].fd, 37);
}

TEST("a device object knows its subdevice and keeps its index")
{
    ledger_begin();
    CHECK_EQ(rm_ledger_subdevice_handle(CLIENT, DEVICE), SUBDEVICE);
    CHECK_EQ(rm_ledger_subdevice_handle(CLIENT, 0xdead), 0);
    CHECK_EQ(rm_ledger_device_handle(CLIENT, SUBDEVICE), DEVICE);
    CHECK_EQ(rm_ledger_device_handle(CLIENT, CLIENT), 0);
    CHECK_EQ(rm_ledger_device_handle(CLIENT, 0xdead), 0);
    CHECK_EQ(rm_ledger_device_index(CLIENT, DEVICE), RM_DEVICE_UNKNOWN);
    rm_ledger_set_device_index(CLIENT, DEVICE, 5);
    CHECK_EQ(rm_ledger_device_index(CLIENT, DEVICE), 5);
}

TEST("the version changes with every change")
{
    uint64_t before, after;
    ledger_begin();
    (void)rm_ledger_bytes(3, &before);
    add_memory(CLIENT, DEVICE, 0x100, MIB);
    (void)rm_ledger_bytes(3, &after);
    CHECK(after != before);
    free_object(CLIENT, 0x100);
    (void)rm_ledger_bytes(3, &before);
    CHECK(after != before);
}

static void *churn(void *argument)
{
    uint32_t client = CLIENT + 16 + (uint32_t)(uintptr_t)argument;
    struct seen seen = {0};
    REQUIRE(rm_ledger_add_client(client) == 0);
    for (int round = 0; round < 50; round++) {
        REQUIRE(rm_ledger_add(client, client, DEVICE, RM_CLASS_DEVICE, 0, 0, ACCOUNT_BUFFER) == 0);
        for (uint32_t i = 0; i < 200; i++)
            add_memory(client, DEVICE, 0x100 + i, MIB);
        rm_ledger_drop(rm_ledger_detach(client, 0x100), see, &seen);
        rm_ledger_attach(rm_ledger_detach(client, 0x101));
        rm_ledger_drop(rm_ledger_detach(client, DEVICE), see, &seen);
    }
    CHECK_EQ(seen.count, 50 * 200);
    return NULL;
}

TEST("eight threads with a client each end with an empty ledger")
{
    pthread_t threads[8];
    rm_ledger_reset();
    for (uintptr_t i = 0; i < 8; i++)
        REQUIRE(pthread_create(&threads[i], NULL, churn, (void *)i) == 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    CHECK_EQ(bytes_held(), 0);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
