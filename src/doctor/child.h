/* SPDX-License-Identifier: Apache-2.0 */
/* A child of vgpu doctor under the library, which does what a program does. */
#ifndef VGPU_DOCTOR_CHILD_H
#define VGPU_DOCTOR_CHILD_H

#include "doctor/facts.h"

#define DOCTOR_ALL_DEVICES (-1)

/* Runs the child and takes in what it says. `library`: to be preloaded into it; NULL where what the
 * environment preloads does. `device`: the CUDA ordinal, or all. A child that does not end is
 * killed. Returns 0, or -errno where it could not be run at all. */
int doctor_ask(const char *library, int device, struct facts *facts);

/* What the child does: its lines go to stdout. Returns the exit status. */
int doctor_probe(int device);

#endif
