/* SPDX-License-Identifier: Apache-2.0 */
/* A cluster from the "input" of a behaviour case of kind "schedule", and what src/schedule answers
 * for its Pod. */
#ifndef VGPU_TEST_SCHEDULE_WORLD_H
#define VGPU_TEST_SCHEDULE_WORLD_H

#include "schedule/ask.h"
#include "schedule/usage.h"

#include <jansson.h>

struct world {
    struct usage *usage;
    struct ask_config config;
    char device_policy[256];
};

/* False with a line on stderr where the input is no case. */
bool world_create(const json_t *input, struct world *ret_world);
void world_destroy(struct world *world);

/* Places input.pod among input.nodeNames: {"error": text}, {"passthrough": true}, {"node": null,
 * "failed": {name: reason}}, or {"node": name, "devices": device string, "fitting": all names that
 * fit}. Checks on the way that the answer is the same without asking for all, that a reservation of
 * it over-commits no device, and that its end leaves all as it was. */
json_t *world_answer(struct world *world, const json_t *input);

/* [{"node": name, "uuid": ..., "memory": used MiB, "cores": percent, "slots": n}, ...] */
json_t *world_usage(const struct world *world);

#endif
