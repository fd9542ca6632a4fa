/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/health_judgement.h"

#include "cluster/handshake.h"

static struct health_judgement judge_handshake(const struct health_evidence *evidence)
{
    struct handshake handshake = handshake_decode(evidence->handshake);
    if (handshake.kind != HANDSHAKE_REQUESTING)
        return (struct health_judgement){.healthy = true, .refresh = true, .request = true};
    /* Plugins from 2.8 on never answer: what kubelet offers tells that one is there. */
    bool waiting =
        !handshake.has_time ||
        evidence->now_local_seconds < handshake.local_seconds + HEALTH_JUDGEMENT_ANSWER_SECONDS;
    return (struct health_judgement){.healthy = waiting || evidence->allocatable > 0};
}

struct health_judgement health_judge(const struct health_evidence *evidence)
{
    struct health_judgement judgement = judge_handshake(evidence);
    bool offered = evidence->allocatable > 0, was_offered = evidence->previous > 0;
    if (!offered && was_offered) {
        judgement.healthy = false;
    } else if (offered && evidence->allocatable != evidence->previous) {
        judgement.healthy = true;
        judgement.refresh = true;
    } else if (offered && evidence->register_changed) {
        judgement.refresh = true;
    }
    return judgement;
}
