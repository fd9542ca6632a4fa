/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/node_read.h"

#include <errno.h>

static const char *text_of(const json_t *annotations, const char *key)
{
    return json_string_value(json_object_get(annotations, key));
}

int node_read(struct usage *usage, const char *name, const json_t *annotations, struct error *error)
{
    const char *text = text_of(annotations, NODE_READ_DEVICES);
    const char *scores_text = text_of(annotations, NODE_READ_SCORES);
    struct node_devices devices = {NULL, 0};
    struct device_scores scores = {0};
    struct usage_node_facts facts = {
        .devices = &devices, .cordon = text_of(annotations, NODE_READ_CORDON)};
    int result = text ? node_devices_decode(text, &devices, error) : 0;
    if (result == -ENOMEM)
        return result;
    if (result || !devices.count) {
        usage_remove_node(usage, name);
        return result;
    }
    int wrong_scores = scores_text ? device_scores_decode(scores_text, &scores, error) : 0;
    if (scores_text && !wrong_scores)
        facts.scores = &scores;
    result = usage_set_node(usage, name, &facts, error);
    device_scores_finish(&scores);
    node_devices_finish(&devices);
    return result ? result : wrong_scores;
}
