/* SPDX-License-Identifier: Apache-2.0 */
/* The fake kubelet as a process beside a test, whose event loop is also the plugin's. */
#ifndef VGPU_TEST_NODE_KUBELET_BED_H
#define VGPU_TEST_NODE_KUBELET_BED_H

#define BED_WAIT_MS 60000 /* for an event that comes; a loaded machine is slow */

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

extern struct event_base *bed_base;
extern char bed_directory[64], bed_kubelet_socket[96], bed_pods_socket[96];

/* The loop and an empty directory. */
void bed_begin(void);
/* Starts the fake kubelet there, and waits until it serves. */
void bed_start_fake(void);
/* It ends as by SIGKILL: its sockets stay. */
void bed_kill_fake(void);
/* One line of JSON. */
void bed_command(const char *line);

uint64_t bed_now_ms(void);
/* Runs the loop until `*word` is `wanted`, or for so long; whether it is. */
bool bed_until(const volatile unsigned *word, unsigned wanted, unsigned ms);
void bed_run(unsigned ms);
/* In a forked child: the events stay for the parent. */
void bed_stop_reading(void);
/* Runs the loop until the fake kubelet has told such an event, and takes all up to it; NULL when it
 * does not within `ms`. To be json_decref'd. */
json_t *bed_event(const char *name, unsigned ms);
/* Those of this name that are told within `ms`. */
unsigned bed_count_events(const char *name, unsigned ms);
const char *bed_text(const json_t *event, const char *key);

#endif
