/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/preferred.h"

#include "codec/no_memory.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct candidate {
    const char *id;
    size_t card;
    bool taken;
};

struct card {
    char uuid[DEVICE_UUID_BYTES];
    size_t open;  /* replicas that are still free */
    size_t given; /* replicas that this container has */
    size_t owed;  /* required replicas that no annotated device has used yet */
};

struct selection {
    struct candidate *candidates; /* what is available and not required */
    size_t candidate_count;
    struct card *cards;
    size_t card_count;
    const char **chosen;
    size_t chosen_count, size;
};

static size_t find_card(const struct selection *selection, const char *uuid)
{
    size_t i = 0;
    while (i < selection->card_count && strcmp(selection->cards[i].uuid, uuid) != 0)
        i++;
    return i;
}

static int add_card(struct selection *selection, const char *id, size_t *ret_card)
{
    char uuid[DEVICE_UUID_BYTES];
    if (device_id_physical(id, uuid))
        return -EINVAL;
    *ret_card = find_card(selection, uuid);
    if (*ret_card < selection->card_count)
        return 0;
    struct card *card = &selection->cards[selection->card_count++];
    memset(card, 0, sizeof(*card));
    memcpy(card->uuid, uuid, sizeof(uuid));
    return 0;
}

static int collect(struct selection *selection, const char *const *available,
    size_t available_count, const char *const *required, size_t required_count)
{
    size_t card;
    for (size_t i = 0; i < required_count; i++) {
        if (add_card(selection, required[i], &card))
            return -EINVAL;
        selection->cards[card].given++;
        selection->cards[card].owed++;
        selection->chosen[selection->chosen_count++] = required[i];
    }
    for (size_t i = 0; i < available_count; i++) {
        bool is_required = false;
        for (size_t r = 0; r < required_count && !is_required; r++)
            is_required = !strcmp(available[i], required[r]);
        if (is_required)
            continue;
        if (add_card(selection, available[i], &card))
            return -EINVAL;
        selection->cards[card].open++;
        selection->candidates[selection->candidate_count++] =
            (struct candidate){available[i], card, false};
    }
    return 0;
}

static bool take_from(struct selection *selection, size_t card)
{
    for (size_t i = 0; i < selection->candidate_count; i++) {
        struct candidate *candidate = &selection->candidates[i];
        if (candidate->taken || candidate->card != card)
            continue;
        candidate->taken = true;
        selection->cards[card].open--;
        selection->cards[card].given++;
        selection->chosen[selection->chosen_count++] = candidate->id;
        return true;
    }
    return false;
}

static bool take_annotated(
    struct selection *selection, const struct pod_devices_container *annotated)
{
    if (annotated->count < selection->size)
        return false;
    for (size_t i = 0; i < selection->size; i++) {
        char uuid[DEVICE_UUID_BYTES];
        if (device_id_physical(annotated->devices[i].uuid, uuid))
            return false;
        size_t card = find_card(selection, uuid);
        if (card == selection->card_count)
            return false;
        if (selection->cards[card].owed)
            selection->cards[card].owed--;
        else if (selection->chosen_count == selection->size || !take_from(selection, card))
            return false;
    }
    return selection->chosen_count == selection->size;
}

/* Forgets what take_annotated took. */
static void restart(struct selection *selection, size_t required_count)
{
    for (size_t i = 0; i < selection->candidate_count; i++) {
        struct candidate *candidate = &selection->candidates[i];
        selection->cards[candidate->card].open += candidate->taken;
        selection->cards[candidate->card].given -= candidate->taken;
        candidate->taken = false;
    }
    selection->chosen_count = required_count;
}

static void take_spread(struct selection *selection)
{
    while (selection->chosen_count < selection->size) {
        size_t best = selection->card_count;
        for (size_t i = 0; i < selection->card_count; i++) {
            const struct card *card = &selection->cards[i], *other = &selection->cards[best];
            if (card->open && (best == selection->card_count || card->given < other->given ||
                                  (card->given == other->given && card->open > other->open)))
                best = i;
        }
        if (best == selection->card_count || !take_from(selection, best))
            return;
    }
}

int preferred_choose(const char *const *available, size_t available_count,
    const char *const *required, size_t required_count, size_t size,
    const struct pod_devices_container *annotated, const char **ret_ids, struct error *error)
{
    if (available_count > PREFERRED_IDS_MAX || size > PREFERRED_IDS_MAX || required_count > size)
        return error_set(error, EINVAL,
            "preferred devices: %zu of %zu with %zu required cannot be chosen", size,
            available_count, required_count);
    struct selection selection = {.size = size};
    selection.candidates = calloc(available_count + 1, sizeof(*selection.candidates));
    selection.cards = calloc(available_count + required_count + 1, sizeof(*selection.cards));
    selection.chosen = calloc(size + 1, sizeof(*selection.chosen));
    int result = 0;
    if (!selection.candidates || !selection.cards || !selection.chosen)
        result = no_memory(error, "preferred devices");
    if (!result && collect(&selection, available, available_count, required, required_count))
        result = error_set(error, EINVAL, "preferred devices: an ID is too long");
    if (!result && !(annotated && take_annotated(&selection, annotated))) {
        restart(&selection, required_count);
        take_spread(&selection);
    }
    if (!result && selection.chosen_count < size)
        result = error_set(error, EINVAL, "preferred devices: only %zu of %zu are available",
            selection.chosen_count, size);
    if (!result)
        memcpy(ret_ids, selection.chosen, size * sizeof(*ret_ids));
    free(selection.candidates);
    free(selection.cards);
    free(selection.chosen);
    return result;
}
