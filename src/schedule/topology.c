/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/topology.h"

#include <stdbool.h>
#include <string.h>

/* Below it, the number of sets is above TOPOLOGY_SETS_MAX unless nearly all or nearly none are
 * wanted; sets are held as bits of one word. */
#define EXACT_DEVICES_MAX 64

static int64_t pair(const struct usage_node *node, uint32_t a, uint32_t b)
{
    return node->pairs[a * node->count + b];
}

static void choose_loneliest(const struct usage_node *node, uint32_t *devices, size_t count)
{
    size_t best = 0;
    int64_t best_sum = 0;
    for (size_t i = 0; i < count; i++) {
        int64_t sum = 0;
        for (size_t k = 0; k < count; k++)
            sum += i == k ? 0 : pair(node, devices[i], devices[k]);
        if (i == 0 || sum < best_sum) {
            best = i;
            best_sum = sum;
        }
    }
    devices[0] = devices[best];
}

static bool are_few_sets(size_t count, size_t wanted)
{
    uint64_t sets = 1;
    for (size_t i = 1; i <= wanted; i++) {
        sets = sets * (count - wanted + i) / i;
        if (sets > TOPOLOGY_SETS_MAX)
            return false;
    }
    return count <= EXACT_DEVICES_MAX;
}

/* All sets in the order of their places: (0,1,2), (0,1,3), ... */
static uint64_t find_best_set(
    const struct usage_node *node, const uint32_t *devices, size_t count, size_t wanted)
{
    size_t at[EXACT_DEVICES_MAX], depth = 0;
    int64_t sums[EXACT_DEVICES_MAX + 1] = {0}, best_sum = INT64_MIN;
    uint64_t best = 0;
    at[0] = 0;
    for (;;) {
        if (at[depth] > count - (wanted - depth)) {
            if (!depth)
                return best;
            at[--depth]++;
            continue;
        }
        sums[depth + 1] = sums[depth];
        for (size_t i = 0; i < depth; i++)
            sums[depth + 1] += pair(node, devices[at[i]], devices[at[depth]]);
        if (depth + 1 < wanted) {
            at[depth + 1] = at[depth] + 1;
            depth++;
            continue;
        }
        if (sums[wanted] > best_sum) {
            best_sum = sums[wanted];
            best = 0;
            for (size_t i = 0; i < wanted; i++)
                best |= UINT64_C(1) << at[i];
        }
        at[depth]++;
    }
}

static void swap(uint32_t *devices, size_t a, size_t b)
{
    uint32_t device = devices[a];
    devices[a] = devices[b];
    devices[b] = device;
}

static void choose_greedily(
    const struct usage_node *node, uint32_t *devices, size_t count, size_t wanted)
{
    size_t first = 0, second = 1;
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count; k++)
            if (pair(node, devices[i], devices[k]) > pair(node, devices[first], devices[second])) {
                first = i;
                second = k;
            }
    swap(devices, 0, first);
    swap(devices, 1, second == 0 ? first : second);
    for (size_t taken = 2; taken < wanted; taken++) {
        size_t best = taken;
        int64_t best_sum = INT64_MIN;
        for (size_t i = taken; i < count; i++) {
            int64_t sum = 0;
            for (size_t k = 0; k < taken; k++)
                sum += pair(node, devices[k], devices[i]);
            if (sum > best_sum) {
                best_sum = sum;
                best = i;
            }
        }
        swap(devices, taken, best);
    }
}

void topology_choose(const struct usage_node *node, uint32_t *devices, size_t count, size_t wanted)
{
    if (!node->pairs || wanted >= count || !wanted)
        return;
    if (wanted == 1) {
        choose_loneliest(node, devices, count);
        return;
    }
    if (!are_few_sets(count, wanted)) {
        choose_greedily(node, devices, count, wanted);
        return;
    }
    uint64_t best = find_best_set(node, devices, count, wanted);
    for (size_t i = 0, kept = 0; i < count; i++)
        if (best & (UINT64_C(1) << i))
            devices[kept++] = devices[i];
}
