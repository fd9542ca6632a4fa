/* SPDX-License-Identifier: Apache-2.0 */
/* Behaviour cases: JSON of {"name","kind","input","expect"}, each run through the pure functions of
 * src/cluster. A key that is absent from "expect" is not checked. */
#ifndef VGPU_TEST_CLUSTER_CASES_H
#define VGPU_TEST_CLUSTER_CASES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct behaviour_case {
    const char *name;
    const char *kind;
    const json_t *input;
    const json_t *expect;
    unsigned checks;
    unsigned failures;
};

/* Counts a check; prints the text as a comment where it did not pass. Returns whether it did. */
__attribute__((format(printf, 3, 4))) bool case_check(
    struct behaviour_case *self, bool passed, const char *format, ...);

/* The member of "expect", NULL where it is absent or null. */
const json_t *case_expected(const struct behaviour_case *self, const char *key);
const char *case_text(const json_t *object, const char *key);
int64_t case_number(const json_t *object, const char *key);
bool case_truth(const json_t *object, const char *key);

/* Each checks a result against the member of "expect", if that is there. */
void case_check_truth(struct behaviour_case *self, const char *key, bool got);
void case_check_number(struct behaviour_case *self, const char *key, int64_t got);
void case_check_text(struct behaviour_case *self, const char *key, const char *got);
void case_check_contains(struct behaviour_case *self, const char *key, const char *got);
void case_check_regex(
    struct behaviour_case *self, const char *what, const char *pattern, const char *got);
/* `error` is the text where the act failed, NULL where it did not. Returns whether there is a
 * result to look at. */
bool case_check_error(struct behaviour_case *self, const char *error);

void case_run_podstring_decode(struct behaviour_case *self);
void case_run_podstring_encode(struct behaviour_case *self);
void case_run_register_decode(struct behaviour_case *self);
void case_run_register_encode(struct behaviour_case *self);
void case_run_request(struct behaviour_case *self);
void case_run_lock(struct behaviour_case *self);
void case_run_health(struct behaviour_case *self);
void case_run_feedback(struct behaviour_case *self);
void case_run_plugin_list(struct behaviour_case *self);
void case_run_plugin_physical_id(struct behaviour_case *self);
void case_run_plugin_preferred(struct behaviour_case *self);
void case_run_allocate(struct behaviour_case *self);

#endif
