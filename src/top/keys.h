/* SPDX-License-Identifier: Apache-2.0 */
/* What keys do in vgpu top: a state of prompts over the model. Knows no terminal. */
#ifndef VGPU_TOP_KEYS_H
#define VGPU_TOP_KEYS_H

#include "top/model.h"
#include "top/order.h"

/* Keys that are no character. */
enum top_press {
    TOP_KEY_UP = 0x110000, /* behind the last character */
    TOP_KEY_DOWN,
    TOP_KEY_PAGE_UP,
    TOP_KEY_PAGE_DOWN,
    TOP_KEY_FIRST,
    TOP_KEY_LAST,
    TOP_KEY_ENTER,
    TOP_KEY_ESCAPE,
    TOP_KEY_ERASE,
};

enum top_mode {
    TOP_LIST,    /* keys steer */
    TOP_FILTER,  /* keys write into `text`, which filters as it grows */
    TOP_VALUE,   /* likewise: the value of a limit */
    TOP_WHICH,   /* likewise: the device that it is for */
    TOP_CONFIRM, /* y, or not */
    TOP_HELP,    /* any key ends it */
};

enum top_limit { TOP_CORES, TOP_SOFT_CORES, TOP_MEMORY_LIMIT, TOP_PRIORITY_LEVEL };

struct top_input {
    enum top_mode mode;
    char prompt[TOP_MESSAGE_BYTES]; /* before `text` */
    char text[TOP_FILTER_BYTES];
    char filter_before[TOP_FILTER_BYTES];
    char message[TOP_MESSAGE_BYTES]; /* the newest answer; empty: none */
    bool message_is_bad;
    enum top_limit limit;
    struct top_order order;       /* being made, then confirmed; of the container that was
                                     selected when it was begun */
    char name[112];               /* of that container, escaped */
    char done[TOP_MESSAGE_BYTES]; /* what is said when it is done */
    unsigned device_count;        /* of it */
    unsigned page;                /* rows on the screen; set by the caller that draws */
    uint64_t delay_ns;            /* between looks */
    bool hide_graphs;
    bool wants_end, wants_look, wants_order; /* for the caller, which takes them back */
};

#define TOP_DELAY_LEAST_NS 100000000ull
#define TOP_DELAY_MOST_NS 3600000000000ull

/* `key`: a character of Unicode, or enum top_press. */
void top_keys_press(struct top_input *input, struct top_model *model, uint32_t key);

/* Says it on the status line. */
void top_keys_say(struct top_input *input, bool bad, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
