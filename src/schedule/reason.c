/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/reason.h"

#include <stdio.h>
#include <string.h>

static const char *const words[REASON_COUNT] = {
    [REASON_NOT_HEALTHY] = "CardNotHealth",
    [REASON_CORDONED] = "CardCordoned",
    [REASON_TYPE] = "CardTypeMismatch",
    [REASON_NUMA] = "NumaNotFit",
    [REASON_UUID] = "CardUuidMismatch",
    [REASON_SLOTS] = "CardTimeSlicingExhausted",
    [REASON_EXCLUSIVE] = "ExclusiveDeviceAllocateConflict",
    [REASON_QUOTA] = "ResourceQuotaNotFit",
    [REASON_MEMORY] = "CardInsufficientMemory",
    [REASON_CORES] = "CardInsufficientCore",
    [REASON_CORES_FULL] = "CardComputeUnitsExhausted",
    [REASON_MIG] = "CardMigTopologyInfeasible",
    [REASON_TOO_FEW] = "AllocatedCardsInsufficientRequest",
};

static const char *const explanations[REASON_COUNT] = {
    [REASON_NOT_HEALTHY] = "the card is not healthy",
    [REASON_CORDONED] = "the node's annotation hami.io/device-cordon names the card",
    [REASON_TYPE] = "the Pod's annotations want another model or mode",
    [REASON_NUMA] = "too few cards that fit are on one NUMA node",
    [REASON_UUID] = "the Pod's annotations want other cards",
    [REASON_SLOTS] = "as many containers as may share the card have it",
    [REASON_EXCLUSIVE] = "the Pod wants a card that nobody else uses",
    [REASON_QUOTA] = "the namespace's quota has too little left",
    [REASON_MEMORY] = "too little of the card's memory is left",
    [REASON_CORES] = "too few of the card's cores are left",
    [REASON_CORES_FULL] = "all of the card's cores are given away",
    [REASON_MIG] = "the card is in HAMi's dynamic MIG mode, which is not served",
    [REASON_TOO_FEW] = "fewer cards fit than the container asks for",
};

static const char *const bare_words[] = {
    [REASON_BARE_NONE] = "",
    [REASON_BARE_TOO_FEW_DEVICES] = "NodeInsufficientDevice",
    [REASON_BARE_UNREGISTERED] = "node unregistered",
};

const char *reason_word(enum reason reason)
{
    return words[reason];
}

const char *reason_bare_word(enum reason_bare bare)
{
    return bare_words[bare];
}

const char *reason_explain(enum reason reason)
{
    return explanations[reason];
}

const char *reason_bare_explain(enum reason_bare bare)
{
    static const char *const texts[] = {
        [REASON_BARE_NONE] = "",
        [REASON_BARE_TOO_FEW_DEVICES] = "the node has fewer cards than the container asks for",
        [REASON_BARE_UNREGISTERED] =
            "no device plugin has registered cards, or the kubelet offers none",
    };
    return texts[bare];
}

void reasons_format(const struct reasons *reasons, char text[REASON_TEXT_BYTES])
{
    char parts[REASON_COUNT][64];
    size_t count = 0, length = 0;
    snprintf(text, REASON_TEXT_BYTES, "%s", reason_bare_word(reasons->bare));
    if (reasons->bare != REASON_BARE_NONE)
        return;
    for (unsigned i = 0; i < REASON_COUNT; i++) {
        char part[64];
        size_t at = count;
        if (!reasons->counts[i])
            continue;
        snprintf(part, sizeof(part), "%u/%u %s", reasons->counts[i], reasons->devices, words[i]);
        for (; at && strcmp(parts[at - 1], part) > 0; at--)
            memcpy(parts[at], parts[at - 1], sizeof(parts[at]));
        memcpy(parts[at], part, sizeof(part));
        count++;
    }
    for (size_t i = 0; i < count; i++)
        length += (size_t)snprintf(
            text + length, REASON_TEXT_BYTES - length, "%s%s", i ? ", " : "", parts[i]);
}
