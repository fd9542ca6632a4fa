/* SPDX-License-Identifier: Apache-2.0 */
/* GetPreferredAllocation: kubelet is to take replicas of the cards that the scheduler chose. Asks
 * nobody: what the watch has not told yet is not preferred. */
#include "node/allocation/allocation.h"
#include "node/allocation/allocation_parts.h"

#include "cluster/preferred.h"
#include "net/log_line.h"
#include "node/settings.h"

#include <errno.h>
#include <stdlib.h>

/* As for an Allocate of as many devices, whose IDs are not known. */
static int find_annotated(struct allocation *allocation, const struct kubelet_preferred *containers,
    size_t count, const struct allocate_pod *candidates, size_t candidate_count,
    struct allocate_choice *ret_choice)
{
    size_t most = 0;
    for (size_t i = 0; i < count; i++)
        if (containers[i].size > 0 && (size_t)containers[i].size > most)
            most = (size_t)containers[i].size;
    const char **ids = most <= PREFERRED_IDS_MAX ? calloc(most + 1, sizeof(char *)) : NULL;
    struct allocate_request *requests = calloc(count + 1, sizeof(*requests));
    int result = ids && requests ? 0 : -ENOMEM;
    for (size_t i = 0; !result && i < most; i++)
        ids[i] = "";
    for (size_t i = 0; !result && i < count; i++)
        requests[i] =
            (struct allocate_request){ids, containers[i].size > 0 ? (size_t)containers[i].size : 0};
    struct allocate_question question = {.node_name = allocation->settings->node_name,
        .lock = pods_lock(allocation->pods),
        .require_proof = allocation->settings->require_proof,
        .requests = requests,
        .request_count = count};
    struct error error;
    if (!result)
        result = allocate_choose(&question, candidates, candidate_count, ret_choice, &error);
    if (result == -EAGAIN) {
        question.lock_holder_gone = true;
        result = allocate_choose(&question, candidates, candidate_count, ret_choice, &error);
    }
    free(ids);
    free(requests);
    return result;
}

void allocation_preferred(struct kubelet_call *call, const struct kubelet_preferred *containers,
    size_t count, void *context)
{
    struct allocation *allocation = context;
    struct allocate_choice choice = {0};
    struct error error = {.text = "no memory"};
    size_t candidate_count = 0;
    struct allocate_pod *candidates = allocation_candidates(allocation, NULL, 0, &candidate_count);
    struct kubelet_ids *answers = calloc(count + 1, sizeof(*answers));
    int result = candidates && answers ? 0 : -ENOMEM;
    bool found = !result && !find_annotated(allocation, containers, count, candidates,
                                candidate_count, &choice);
    for (size_t i = 0; !result && i < count; i++) {
        const struct kubelet_preferred *asked = &containers[i];
        size_t size = asked->size > 0 ? (size_t)asked->size : 0;
        const char **ids = size <= PREFERRED_IDS_MAX ? calloc(size + 1, sizeof(char *)) : NULL;
        result =
            ids ? preferred_choose(asked->available.ids, asked->available.count,
                      asked->must_include.ids, asked->must_include.count, size,
                      found ? &choice.left.containers[choice.steps[i].slot] : NULL, ids, &error)
                : -ENOMEM;
        answers[i] = (struct kubelet_ids){ids, size};
    }
    if (result)
        kubelet_refuse(call, GRPC_INVALID_ARGUMENT, error.text);
    else if (kubelet_answer_preferred(call, answers, count, &error))
        log_line(LOG_LINE_ERROR, "allocation: the preferred devices: %s", error.text);
    for (size_t i = 0; answers && i < count; i++)
        free((char **)answers[i].ids);
    free(answers);
    allocate_choice_finish(&choice);
    allocation_candidates_free(candidates, candidate_count);
}
