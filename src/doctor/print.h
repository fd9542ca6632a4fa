/* SPDX-License-Identifier: Apache-2.0 */
/* What vgpu doctor found, for people and for programs. */
#ifndef VGPU_DOCTOR_PRINT_H
#define VGPU_DOCTOR_PRINT_H

#include "doctor/checks.h"

#include <stdio.h>

struct json;

/* Lines for people; what is alike of several devices in one. */
void doctor_print(FILE *stream, const struct checks *checks);
void doctor_print_json(const struct checks *checks, const struct facts *facts);

/* The members problems, notes and checks. */
void doctor_print_json_checks(struct json *json, const struct checks *checks);

#endif
