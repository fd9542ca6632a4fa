/* SPDX-License-Identifier: Apache-2.0 */
/* vgpu doctor: a child process under the library does what a program does, and prints what it met
 * as lines "NAME VALUE" (facts); from those, and from what lies on the system, come the checks that
 * are printed. docs/doctor.md lists both. */
#ifndef VGPU_DOCTOR_DOCTOR_H
#define VGPU_DOCTOR_DOCTOR_H

/* The sub-command: arguments without `vgpu`; returns the exit status. */
int doctor_main(int argc, char **argv);

#endif
