/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/device_score.h"

#include "codec/json_read.h"
#include "codec/no_memory.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define WHAT "score annotation"

int device_scores_create(size_t count, struct device_scores *ret_scores)
{
    struct device_scores scores = {.count = count};
    if (count > DEVICE_SCORE_DEVICES_MAX)
        return -E2BIG;
    scores.uuids = calloc(count ? count : 1, sizeof(scores.uuids[0]));
    scores.scores = calloc(count ? count * count : 1, sizeof(scores.scores[0]));
    if (!scores.uuids || !scores.scores) {
        device_scores_finish(&scores);
        return -ENOMEM;
    }
    *ret_scores = scores;
    return 0;
}

void device_scores_finish(struct device_scores *scores)
{
    free(scores->uuids);
    free(scores->scores);
    *scores = (struct device_scores){0};
}

/* `count` where it is unknown. */
static size_t find(const struct device_scores *scores, const char *uuid)
{
    size_t i = 0;
    while (i < scores->count && strcmp(scores->uuids[i], uuid) != 0)
        i++;
    return i;
}

/* A set of names as a JSON object: each UUID of the text once. */
static int collect_names(const json_t *list, json_t *names, struct error *error)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i), *peers = json_object_get(item, "score");
        const json_t *uuid = json_object_get(item, "uuid");
        const char *peer;
        json_t *score;
        if (!json_is_string(uuid))
            return error_set(error, EINVAL, WHAT ": an item without a uuid");
        if (peers && !json_is_null(peers) && !json_is_object(peers))
            return error_set(error, EINVAL, WHAT ": a score is not an object");
        if (json_object_set_new(names, json_string_value(uuid), json_true()))
            return no_memory(error, WHAT);
        json_object_foreach((json_t *)peers, peer, score)
        {
            if (!json_is_integer(score) || json_integer_value(score) < INT32_MIN ||
                json_integer_value(score) > INT32_MAX)
                return error_set(
                    error, EINVAL, WHAT ": the score of \"%.80s\" is not a whole number", peer);
            if (json_object_set_new(names, peer, json_true()))
                return no_memory(error, WHAT);
        }
        if (json_object_size(names) > DEVICE_SCORE_DEVICES_MAX)
            return error_set(error, E2BIG, WHAT ": more than %d devices", DEVICE_SCORE_DEVICES_MAX);
    }
    return 0;
}

static int copy_names(json_t *names, struct device_scores *scores, struct error *error)
{
    const char *name;
    json_t *value;
    size_t i = 0;
    json_object_foreach(names, name, value)
    {
        if (strlen(name) >= DEVICE_UUID_BYTES)
            return error_set(error, EINVAL, WHAT ": UUID \"%.40s...\" is longer than %d bytes",
                name, DEVICE_UUID_BYTES - 1);
        memcpy(scores->uuids[i++], name, strlen(name) + 1);
    }
    return 0;
}

static void copy_scores(const json_t *list, struct device_scores *scores)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        size_t from = find(scores, json_string_value(json_object_get(item, "uuid")));
        const char *peer;
        json_t *score;
        json_object_foreach(json_object_get(item, "score"), peer, score)
            scores->scores[from * scores->count + find(scores, peer)] =
            (int32_t)json_integer_value(score);
    }
}

static int decode_list(const json_t *list, struct device_scores *scores, struct error *error)
{
    json_t *names = json_object();
    int result = names ? collect_names(list, names, error) : no_memory(error, WHAT);
    if (!result && device_scores_create(json_object_size(names), scores))
        result = no_memory(error, WHAT);
    if (!result)
        result = copy_names(names, scores, error);
    if (!result)
        copy_scores(list, scores);
    json_decref(names);
    return result;
}

int device_scores_decode(const char *text, struct device_scores *ret_scores, struct error *error)
{
    struct device_scores scores = {0};
    if (strlen(text) > DEVICE_SCORE_TEXT_MAX)
        return error_set(error, E2BIG, WHAT ": more than %d bytes", DEVICE_SCORE_TEXT_MAX);
    json_t *list = json_read_text(WHAT, text, error);
    if (!list)
        return -EINVAL;
    int result = json_is_array(list) ? decode_list(list, &scores, error)
                                     : error_set(error, EINVAL, WHAT ": not a list");
    json_decref(list);
    if (result)
        device_scores_finish(&scores);
    else
        *ret_scores = scores;
    return result;
}

static json_t *make_row(const struct device_scores *scores, size_t from)
{
    json_t *peers = json_object();
    for (size_t to = 0; to < scores->count; to++) {
        int32_t score = scores->scores[from * scores->count + to];
        if (score && json_object_set_new(peers, scores->uuids[to], json_integer(score))) {
            json_decref(peers);
            return NULL;
        }
    }
    if (json_object_size(peers))
        return json_pack("{ss so}", "uuid", scores->uuids[from], "score", peers);
    json_decref(peers);
    return json_pack("{ss}", "uuid", scores->uuids[from]);
}

char *device_scores_encode(const struct device_scores *scores)
{
    json_t *list = json_array();
    char *text = NULL;
    bool failed = !list;
    for (size_t from = 0; !failed && from < scores->count; from++)
        failed = json_array_append_new(list, make_row(scores, from)) != 0;
    if (!failed)
        text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

int32_t device_scores_pair(const struct device_scores *scores, const char *a, const char *b)
{
    size_t from = find(scores, a), to = find(scores, b);
    return from < scores->count && to < scores->count ? scores->scores[from * scores->count + to]
                                                      : 0;
}
