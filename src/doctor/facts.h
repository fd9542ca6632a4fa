/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a place: names and values, from lines "NAME VALUE". */
#ifndef VGPU_DOCTOR_FACTS_H
#define VGPU_DOCTOR_FACTS_H

#include <stdbool.h>
#include <stddef.h>

#define DOCTOR_FACTS 2048

struct facts {
    struct fact {
        char *name, *value; /* from malloc */
    } list[DOCTOR_FACTS];
    size_t count;
};

/* Sets what is known under the name, in place of what was. Both are copied. */
void facts_set(struct facts *facts, const char *name, const char *value);

/* Takes the lines of a text. Lines without a blank are passed over. */
void facts_add_lines(struct facts *facts, char *text);

/* The value of the fact whose name the format makes; NULL where there is none. It stays until the
 * fact is set anew. */
const char *fact(const struct facts *facts, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Whether it is `value`. */
bool fact_is(const struct facts *facts, const char *value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As a decimal number; 0 where there is none. */
unsigned long long fact_number(const struct facts *facts, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Of what `facts` holds, and of it itself, which is from malloc. */
void facts_free(struct facts *facts);

#endif
