/* SPDX-License-Identifier: Apache-2.0 */
/* Binds that may not go on yet. Those to one node go on in the order in which they came, so that
 * none is overtaken for ever. They are looked at when a Pod of theirs or their node changes, and
 * with each tick. */
#include "scheduler/bind_parts.h"

#include <stdio.h>
#include <string.h>

void bind_wait(struct bind *bind, enum bind_wait why)
{
    if (bind->waits == BIND_GOES && bind->scheduler->binds_waiting == BINDS_WAITING_MAX) {
        bind_fail(bind, "too many Pods wait to be bound");
        return;
    }
    bind->scheduler->binds_waiting += bind->waits == BIND_GOES;
    bind->waits = why;
}

void bind_wait_end(struct bind *bind)
{
    bind->scheduler->binds_waiting -= bind->waits != BIND_GOES;
    bind->waits = BIND_GOES;
}

bool bind_has_earlier(const struct bind *bind)
{
    const struct bind *other;
    TAILQ_FOREACH(other, &bind->scheduler->binds, entry)
    {
        if (other == bind)
            return false;
        if (other->waits == BIND_WAITS_FLIGHT && !strcmp(other->node, bind->node))
            return true;
    }
    return false;
}

static void give_up(struct bind *bind)
{
    char text[EVENT_MESSAGE_MAX];
    snprintf(text, sizeof(text),
        "node %s: another Pod that asks for other devices was bound before, and the node's device "
        "plugin has not served it yet",
        bind->node);
    bind_fail(bind, text);
}

static void look_at(struct bind *bind, bool all)
{
    const struct scheduler_node *node = table_get(&bind->scheduler->nodes, bind->node);
    if (!scheduler_is_ready(bind->scheduler)) {
        bind_fail(bind, SCHEDULER_NOT_READY);
    } else if (bind->waits == BIND_WAITS_FLIGHT) {
        if (scheduler_now_ns() >= bind->until_ns)
            give_up(bind);
        else
            bind_go_on(bind);
    } else if (all || !node || node->lock_digest != bind->lock_seen) {
        bind_wait_end(bind);
        bind_take_lock(bind);
    }
}

void scheduler_look_at_binds(struct scheduler *scheduler, bool all)
{
    for (struct bind *bind = TAILQ_FIRST(&scheduler->binds), *next; bind; bind = next) {
        next = TAILQ_NEXT(bind, entry);
        if (bind->waits != BIND_GOES)
            look_at(bind, all);
    }
}
