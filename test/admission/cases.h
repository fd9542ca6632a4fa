/* SPDX-License-Identifier: Apache-2.0 */
/* Behaviour cases of the webhook: the JSON form of test/cluster/cases.h, of the kind "webhook". */
#ifndef VGPU_TEST_ADMISSION_CASES_H
#define VGPU_TEST_ADMISSION_CASES_H

#include <jansson.h>
#include <stdbool.h>

struct webhook_case {
    const char *name;
    const json_t *input, *expect;
    unsigned checks, failures;
};

/* Counts a check; prints the text as a comment where it did not pass. Returns whether it did. */
__attribute__((format(printf, 3, 4))) bool case_check(
    struct webhook_case *self, bool passed, const char *format, ...);

/* The member of "expect", NULL where it is absent or null. */
const json_t *case_expected(const struct webhook_case *self, const char *key);

/* Checks an object against after, absent, unchanged, env and env_absent. */
void case_check_object(struct webhook_case *self, const json_t *before, const json_t *after);

#endif
