/* SPDX-License-Identifier: Apache-2.0 */
/* The score annotation: what is taken is written, and reads the same again. */
#include "cluster/device_score.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct device_scores scores, again;
    struct error error = {.text = ""};
    if (device_scores_decode(text, &scores, &error)) {
        FUZZ_CHECK(*error.text && error.code > 0);
        free(text);
        return 0;
    }
    char *written = device_scores_encode(&scores);
    FUZZ_CHECK(written && !device_scores_decode(written, &again, NULL));
    FUZZ_CHECK(again.count == scores.count);
    for (size_t a = 0; a < scores.count && a < 8; a++)
        for (size_t b = 0; b < scores.count && b < 8; b++)
            FUZZ_CHECK(device_scores_pair(&again, scores.uuids[a], scores.uuids[b]) ==
                       scores.scores[a * scores.count + b]);
    device_scores_finish(&again);
    device_scores_finish(&scores);
    free(written);
    free(text);
    return 0;
}
