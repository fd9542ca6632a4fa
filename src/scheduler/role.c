/* SPDX-License-Identifier: Apache-2.0 */
/* The label hami.io/scheduler-role of this scheduler's own Pod, leader or follower: HAMi's Service
 * selects the leader by it. */
#include "kube/patch.h"
#include "net/log_line.h"
#include "scheduler/scheduler_parts.h"

#include <stdlib.h>

#define ROLE_LABEL "hami.io/scheduler-role"
/* After a refusal, which seldom passes by itself. */
#define AGAIN_NS (INT64_C(30) * 1000000000)

static void on_patched(void *context, const struct kube_reply *reply)
{
    struct scheduler_role *role = &((struct scheduler *)context)->role;
    role->call = NULL;
    role->is_told = reply->status >= 200 && reply->status < 300;
    if (role->is_told)
        return;
    log_line(LOG_LINE_WARNING, "leader: the label " ROLE_LABEL ": %s", reply->text);
    role->again_ns = scheduler_now_ns() + AGAIN_NS;
}

void scheduler_tell_role(struct scheduler *scheduler)
{
    const struct scheduler_options *options = &scheduler->options;
    struct scheduler_role *role = &scheduler->role;
    if (!scheduler->leader || !options->pod_namespace || role->call)
        return;
    bool leads = leader_left_ms(scheduler->leader) > 0;
    if (role->is_told && role->leads == leads)
        return;
    if (role->leads == leads && scheduler_now_ns() < role->again_ns)
        return;
    json_t *patch = patch_create();
    char *path = scheduler_pod_path(options->pod_namespace, options->identity, "");
    role->is_told = false;
    role->leads = leads;
    if (patch && path && !patch_label(patch, ROLE_LABEL, leads ? "leader" : "follower")) {
        const struct kube_request request = {.method = "PATCH",
            .path = path,
            .content_type = PATCH_MERGE,
            .body = patch,
            .deadline_ms = 10000,
            .on_done = on_patched,
            .context = scheduler};
        /* The next tick tries again. */
        if (kube_client_start(options->client, &request, &role->call))
            role->call = NULL;
    }
    json_decref(patch);
    free(path);
}
