/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu doctor: a child of ours under the library does what a program does, and says what it met in
 * lines "NAME VALUE" (facts); from those, and from what lies on the system, come the checks that
 * are printed. docs/doctor.md lists both. */
#ifndef VGPU_DOCTOR_DOCTOR_H
#define VGPU_DOCTOR_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* The sub-command: arguments without `vgpu`; returns the exit status. */
int doctor_main(int argc, char **argv);

/* ---- facts ---- */

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

/* ---- the child ---- */

#define DOCTOR_ALL_DEVICES (-1)

/* Runs the child and takes in what it says. `library`: to be preloaded into it; NULL where what the
 * environment preloads does. `device`: the CUDA ordinal, or all. A child that does not end is
 * killed. Returns 0, or -errno where it could not be run at all. */
int doctor_ask(const char *library, int device, struct facts *facts);

/* What the child does: its lines go to stdout. Returns the exit status. */
int doctor_probe(int device);

/* ---- checks ---- */

enum check_status { CHECK_FINE, CHECK_NOTE, CHECK_PROBLEM };

struct checks {
    struct check {
        const char *name;
        int device; /* CUDA's ordinal; -1: of none */
        enum check_status status;
        char text[1024];
        const char *remedy; /* NULL: none is needed */
    } list[1024];
    size_t count;
};

/* Adds a check. `remedy` is not copied. */
void check_add(struct checks *checks, const char *name, int device, enum check_status status,
    const char *remedy, const char *format, ...) __attribute__((format(printf, 6, 7)));

/* Of what lies around it, the process, the region, and the container and its devices. */
void checks_of_place(struct checks *checks);
void checks_of_process(struct checks *checks, const struct facts *facts);
void checks_of_region(struct checks *checks, const struct facts *facts);
void checks_of_container(struct checks *checks, const struct facts *facts);

/* The number under which the library's report has the CUDA device; -1 where it has none. */
int doctor_reported(const struct facts *facts, int ordinal);

/* ---- deadline ---- */

/* Has a child do the work, and returns its exit status. Where it has not ended in time, one line
 * says at what it was, and it is left behind. */
int doctor_within(unsigned seconds, int (*work)(void *context), void *context);

/* What the signals do that would end this process: SIGHUP, SIGINT and SIGTERM. */
enum doctor_signals {
    DOCTOR_SIGNALS_END_US,    /* as ever; those that came meanwhile, too */
    DOCTOR_SIGNALS_END_CHILD, /* that of doctor_within */
    DOCTOR_SIGNALS_WAIT,
};
void doctor_take_signals(enum doctor_signals how);

/* What the work is at. */
void doctor_step(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- output ---- */

struct json;

/* Lines for people; what is alike of several devices in one. */
void doctor_print(FILE *stream, const struct checks *checks);
void doctor_print_json(const struct checks *checks, const struct facts *facts);

/* The members problems, notes and checks. */
void doctor_json_checks(struct json *json, const struct checks *checks);

#endif
