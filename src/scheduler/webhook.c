/* SPDX-License-Identifier: Apache-2.0 */
/* POST /webhook and /validate: src/admission with the quotas that the watches show. */
#include "admission/admission.h"
#include "net/log_line.h"
#include "scheduler/scheduler_parts.h"

#include <stdlib.h>
#include <string.h>

static bool find_quota(
    const void *context, const char *namespace_name, struct admission_quota *ret_quota)
{
    const struct scheduler *scheduler = context;
    const struct quota_namespace *entry = quotas_find(scheduler->usage->quotas, namespace_name);
    if (!entry)
        return false;
    *ret_quota = (struct admission_quota){
        .memory_is_limited = entry->limit.memory != QUOTA_NONE,
        .cores_are_limited = entry->limit.cores != QUOTA_NONE,
        .memory_limit_mib = entry->limit.memory,
        .memory_used_mib = entry->used.memory,
        .cores_limit = entry->limit.cores,
        .cores_used = entry->used.cores,
    };
    return true;
}

static void review(struct scheduler *scheduler, struct http_exchange *exchange,
    const struct http_server_request *request, enum admission_role role)
{
    const struct admission_quota_view quotas = {find_quota, scheduler};
    struct admission_answer answer;
    if (admission_review(scheduler->options.admission, &quotas, role, request->body,
            request->body_bytes, &answer)) {
        scheduler_answer(exchange, NULL);
        return;
    }
    log_line(answer.allowed ? LOG_LINE_DEBUG : LOG_LINE_INFO, "webhook: %s %s, %d: %s",
        answer.subject, answer.allowed ? "allowed" : "denied", answer.code, answer.message);
    scheduler->reviews++;
    scheduler->denials += !answer.allowed;
    http_exchange_answer(exchange, 200, ANSWER_TYPE, answer.body, answer.bytes);
    admission_answer_finish(&answer);
}

void scheduler_webhook(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    review(context, exchange, request, ADMISSION_MUTATE);
}

void scheduler_validate(
    void *context, struct http_exchange *exchange, const struct http_server_request *request)
{
    review(context, exchange, request, ADMISSION_VALIDATE);
}
