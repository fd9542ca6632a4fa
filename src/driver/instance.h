/* SPDX-License-Identifier: Apache-2.0 */
/* MIG: which compute instance this process uses on a card. CUDA tells both UUIDs; the resource
 * manager and NVML's handles of cards tell the card's alone. A process uses one instance at most
 * (MIG user guide, "CUDA Device Enumeration"). */
#ifndef VGPU_DRIVER_INSTANCE_H
#define VGPU_DRIVER_INSTANCE_H

/* CUDA gives this process the instance of the card; the first that is told for a card stays, also
 * in a forked child. Any thread. */
void instance_tie(const char *card, const char *instance);

/* The UUID of the instance where `uuid` is the card's of one that is tied, else `uuid` itself.
 * Takes no lock; the answer stays while the process does, or while `uuid` does. */
const char *instance_of(const char *uuid);

/* For a forked child: a thread that the fork left behind may have been at it. */
void instance_reset(void);

#endif
