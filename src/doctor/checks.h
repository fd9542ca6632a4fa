/* SPDX-License-Identifier: Apache-2.0 */
/* The checks that vgpu doctor prints; docs/doctor.md lists them. */
#ifndef VGPU_DOCTOR_CHECKS_H
#define VGPU_DOCTOR_CHECKS_H

#include "doctor/facts.h"

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

#endif
