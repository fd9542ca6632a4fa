/* SPDX-License-Identifier: Apache-2.0 */
#include "host/living.h"

#include "base/text.h"
#include "region/region_read.h"
#include "region/slot.h"
#include "host/say.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void note(struct living *living, const struct vgpu_slot *slot)
{
    if (living->count < LIVING_SHOWN) {
        struct living_process *process = &living->shown[living->count];
        process->pid = slot_word_pid(slot->state);
        text_escape(process->command, sizeof(process->command), slot->command,
            strnlen(slot->command, sizeof(slot->command)));
    }
    living->count++;
}

int living_read(const struct chosen_region *chosen, struct living *ret_living)
{
    struct region_reading reading;
    struct vgpu_slot slot;
    struct living living = {0};
    bool locked;
    int found = region_read(chosen->region.fd, &reading);
    for (unsigned i = 0; found >= 0 && i < reading.slot_bound; i++) {
        found = region_read_slot(&reading, i, &slot, &locked);
        if (found > 0)
            note(&living, &slot);
    }
    if (found < 0)
        return found;
    *ret_living = living;
    return 0;
}

void living_print(const struct living *living)
{
    printf("%u process%s", living->count, living->count == 1 ? "" : "es");
    for (unsigned i = 0; i < living->count && i < LIVING_SHOWN; i++)
        printf("%s %d (%s)", i ? "," : ":", living->shown[i].pid, living->shown[i].command);
    if (living->count > LIVING_SHOWN)
        printf(" and %u more", living->count - LIVING_SHOWN);
    putchar('\n');
}

int living_look(struct chosen_region *chosen, struct pause_outcome *ret_outcome)
{
    struct pause_outcome outcome = {0};
    int error = living_read(chosen, &outcome.living);
    if (!error)
        error = region_set_state(&chosen->region, &outcome.state);
    outcome.was = outcome.state.paused;
    if (!error)
        *ret_outcome = outcome;
    return error;
}

int living_pause(struct chosen_region *chosen, bool paused, struct pause_outcome *ret_outcome)
{
    struct pause_outcome outcome;
    uint32_t order;
    int error = living_look(chosen, &outcome);
    if (error)
        return error;
    outcome.empty = paused && !outcome.living.count;
    if (!paused && outcome.state.release == VGPU_RELEASE_CHECKPOINT)
        return -EBUSY;
    if (!outcome.empty)
        error = region_set_paused(&chosen->region, paused, &outcome.was);
    if (!error && !paused && outcome.state.release != VGPU_RELEASE_NONE)
        error = region_set_release(&chosen->region, VGPU_RELEASE_NONE, &order);
    if (!error)
        error = region_set_state(&chosen->region, &outcome.state);
    if (!error)
        *ret_outcome = outcome;
    return error;
}

void living_refuse_empty(const struct chosen_region *chosen, const struct pause_outcome *outcome)
{
    say_error("no process that has used the GPU lives in the region %.256s (%s): there is nothing "
              "to pause, and nothing is changed%s; 'vgpu ps' lists the containers",
        chosen->path, chosen->reason,
        outcome->state.paused ? ". It is paused since before, until 'vgpu resume'" : "");
}
