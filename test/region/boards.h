/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of boards share: boards in the peers' directory (peers.h). Each struct registry is
 * an open file of its own, so two of them in one process are as two processes. */
#ifndef VGPU_TEST_REGION_BOARDS_H
#define VGPU_TEST_REGION_BOARDS_H

#include "base/atomic.h"
#include "base/clock.h"
#include "check.h"
#include "peers.h"
#include "registry/registry.h"

#define BOARDS_UUID PEERS_UUID

static char boards_path[256];

static inline void boards_begin(void)
{
    peers_begin();
    snprintf(boards_path, sizeof(boards_path), "%s/" VGPU_BOARD_FILE_PREFIX "%s", peers_directory,
        BOARDS_UUID);
}

static inline int boards_try(struct registry *board, uint64_t tenant)
{
    return registry_attach(board, peers_directory, BOARDS_UUID, tenant, "test");
}

static inline void boards_attach(struct registry *board, uint64_t tenant)
{
    REQUIRE(boards_try(board, tenant) == 0);
}

static inline void boards_say(struct registry *board, bool active, uint64_t now_ns)
{
    const struct registry_own own = {.active = active, .core_limit = 30, .priority = 1};
    registry_publish(board, &own, now_ns);
}

static inline struct registry_view boards_look(struct registry *board, uint64_t now_ns)
{
    struct registry_view view;
    registry_look(board, now_ns, &view);
    return view;
}

/* Looks after the file as if the time for it had come. */
static inline void boards_keep(struct registry *board)
{
    store_relaxed(&board->looked_ns, (uint64_t)0);
    registry_keep(board, clock_now_ns());
}

/* Whether each sees the other at work. */
static inline bool boards_meet(struct registry *a, struct registry *b)
{
    uint64_t now = clock_now_ns();
    boards_say(a, true, now);
    boards_say(b, true, now);
    return boards_look(a, now).active == 1 && boards_look(b, now).active == 1;
}

static inline unsigned boards_held(struct registry *board)
{
    static struct registry_tenant tenants[VGPU_BOARD_SLOTS];
    return registry_tenants(board, clock_now_ns(), tenants);
}

#endif
