/* SPDX-License-Identifier: Apache-2.0 */
#include "node/topology.h"

#include <errno.h>
#include <string.h>

#define NVLINK_SCORE 100

int32_t topology_score(const struct scan_link *link)
{
    int32_t score;
    if (!link->known)
        return 0;
    switch (link->level) {
    case NVML_TOPOLOGY_INTERNAL:
        score = 60;
        break;
    case NVML_TOPOLOGY_SINGLE:
        score = 50;
        break;
    case NVML_TOPOLOGY_MULTIPLE:
        score = 40;
        break;
    case NVML_TOPOLOGY_HOSTBRIDGE:
        score = 30;
        break;
    case NVML_TOPOLOGY_NODE:
        score = 20;
        break;
    case NVML_TOPOLOGY_SYSTEM:
        score = 10;
        break;
    default:
        score = 0;
    }
    return score + NVLINK_SCORE * (int32_t)link->nvlinks;
}

/* The cards of scan->links that are offered: their places there. */
static size_t find_offered(
    const struct scan *scan, const struct inventory *inventory, size_t places[])
{
    size_t count = 0, place = 0;
    for (size_t i = 0; i < scan->count && place < scan->link_cards; i++) {
        const struct scan_card *card = &scan->cards[i];
        if (*card->parent || !*card->uuid)
            continue;
        if (count < INVENTORY_CARDS_MAX && inventory_find(inventory, card->uuid))
            places[count++] = place;
        place++;
    }
    return count;
}

static const char *uuid_at(const struct scan *scan, size_t place)
{
    for (size_t i = 0; i < scan->count; i++)
        if (!*scan->cards[i].parent && *scan->cards[i].uuid && place-- == 0)
            return scan->cards[i].uuid;
    return "";
}

int topology_scores(const struct scan *scan, const struct inventory *inventory,
    void (*asymmetric)(void *context, const char *a, const char *b, int32_t a_to_b, int32_t b_to_a),
    void *context, struct device_scores *ret_scores)
{
    size_t places[INVENTORY_CARDS_MAX];
    struct device_scores scores;
    if (!scan->links)
        return -ENOENT;
    size_t count = find_offered(scan, inventory, places);
    int failure = device_scores_create(count, &scores);
    if (failure)
        return failure;
    for (size_t i = 0; i < count; i++)
        memcpy(scores.uuids[i], uuid_at(scan, places[i]), sizeof(scores.uuids[i]));
    for (size_t a = 0; a < count; a++) {
        for (size_t b = a + 1; b < count; b++) {
            int32_t there = topology_score(&scan->links[places[a] * scan->link_cards + places[b]]);
            int32_t back = topology_score(&scan->links[places[b] * scan->link_cards + places[a]]);
            if (there != back)
                asymmetric(context, scores.uuids[a], scores.uuids[b], there, back);
            scores.scores[a * count + b] = scores.scores[b * count + a] = there == back ? there : 0;
        }
    }
    *ret_scores = scores;
    return 0;
}
