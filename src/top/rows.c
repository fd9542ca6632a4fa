/* SPDX-License-Identifier: Apache-2.0 */
/* Which containers and processes are shown, in what order, and which of them is selected. */
#include "top/model.h"

#include "collect/collect_words.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const sort_names[TOP_SORTS] = {
    "gpu", "minute", "memory", "priority", "processes", "name"};

const char *top_sort_name(enum top_sort sort)
{
    return sort_names[sort];
}

bool top_sort_parse(const char *name, enum top_sort *ret_sort)
{
    for (int i = 0; i < TOP_SORTS; i++) {
        if (!strcmp(name, sort_names[i])) {
            *ret_sort = (enum top_sort)i;
            return true;
        }
    }
    return false;
}

struct top_key top_row_key(const struct top_row *row)
{
    struct top_key key = {.file_device = row->container->file_device,
        .file_inode = row->container->file_inode,
        .device = row->device};
    if (row->process) {
        key.pid = row->process->pid;
        key.namespace = row->container->namespaces[row->process - row->container->processes];
    }
    return key;
}

/* ---- what is shown ---- */

static bool contains(const struct top_model *model, const char *text)
{
    return strcasestr(text, model->filter) != NULL;
}

static bool container_matches(
    const struct top_model *model, const struct collected_container *container)
{
    if (!model->filter[0] || contains(model, collect_words_container(container)) ||
        contains(model, container->path))
        return true;
    for (unsigned d = 0; d < container->device_count; d++) {
        if (contains(model, collect_words_state(container, &container->devices[d])) ||
            contains(model, container->devices[d].uuid))
            return true;
    }
    return false;
}

static bool process_matches(const struct top_model *model, const struct collected_process *process)
{
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", process->host_pid ? process->host_pid : process->pid);
    return contains(model, process->command) || !strcmp(pid, model->filter);
}

static bool any_process_matches(
    const struct top_model *model, const struct collected_container *container)
{
    for (unsigned p = 0; p < container->process_count; p++) {
        if (process_matches(model, &container->processes[p]))
            return true;
    }
    return false;
}

/* ---- in what order ---- */

struct sorted {
    size_t index; /* in the look, or in the container */
    double value; /* the larger, the further above */
};

static double sum_over_devices(const struct collected_container *container, enum top_sort sort)
{
    double sum = 0;
    for (unsigned d = 0; d < container->device_count; d++) {
        const struct collected_device *device = &container->devices[d];
        double value = sort == TOP_BY_GPU      ? device->share_now
                       : sort == TOP_BY_MINUTE ? device->share_minute
                                               : (double)device->memory.bytes;
        sum += value > 0 ? value : 0;
    }
    return sum;
}

static double value_of(const struct top_model *model, const struct collected_container *container)
{
    switch (model->sort) {
    case TOP_BY_PRIORITY: /* 0 is high */
        return -(double)container->priority;
    case TOP_BY_PROCESSES:
        return container->process_count;
    case TOP_BY_NAME: /* as the look has them */
        return 0;
    default:
        return sum_over_devices(container, model->sort);
    }
}

/* Processes are in the order of their slots where it is not about what each of them has. */
static double process_value(
    const struct top_model *model, const struct collected_container *container, unsigned process)
{
    double sum = 0;
    struct top_row row = {.container = container, .process = &container->processes[process]};
    if (model->sort != TOP_BY_GPU && model->sort != TOP_BY_MINUTE && model->sort != TOP_BY_MEMORY)
        return 0;
    for (row.device = 0; row.device < container->device_count; row.device++) {
        double share = model->sort == TOP_BY_MEMORY
                           ? (double)row.process->uses[row.device].memory.bytes
                           : top_model_share(model, &row);
        sum += share > 0 ? share : 0;
    }
    return sum;
}

static int compare_sorted(const void *one, const void *other, void *context)
{
    const struct sorted *a = one, *b = other;
    const struct top_model *model = context;
    int order = a->value > b->value ? -1 : a->value < b->value;
    if (!order)
        order = a->index < b->index ? -1 : a->index > b->index;
    return model->reverse ? -order : order;
}

/* ---- the rows ---- */

static void add_row(struct top_model *model, const struct top_row *row)
{
    model->rows[model->row_count++] = *row;
}

/* On the devices that it uses; on the last where it uses none. */
static void add_process(struct top_model *model, const struct collected_container *container,
    const struct collected_process *process)
{
    struct top_row row = {.container = container, .process = process, .first = true};
    for (unsigned d = 0; d < container->device_count || row.first; d++) {
        bool met = d < container->device_count, last = d + 1 >= container->device_count;
        if (met && !process->uses[d].memory.bytes && !process->uses[d].gate && !(row.first && last))
            continue;
        row.device = d;
        add_row(model, &row);
        row.first = false;
    }
}

static void add_processes(struct top_model *model, const struct collected_container *container,
    bool all, struct sorted *order)
{
    for (unsigned p = 0; p < container->process_count; p++)
        order[p] = (struct sorted){p, process_value(model, container, p)};
    qsort_r(order, container->process_count, sizeof(*order), compare_sorted, model);
    for (unsigned i = 0; i < container->process_count; i++) {
        const struct collected_process *process = &container->processes[order[i].index];
        if (all || process_matches(model, process))
            add_process(model, container, process);
    }
}

static void add_container(
    struct top_model *model, const struct collected_container *container, struct sorted *order)
{
    bool all = container_matches(model, container);
    if (!all && !any_process_matches(model, container))
        return;
    for (unsigned d = 0; d < container->device_count || !d; d++)
        add_row(model, &(struct top_row){.container = container, .device = d, .first = !d});
    const struct top_track *track = top_model_track(model, container, 0);
    if (!model->hide_processes && !(track && track->folded))
        add_processes(model, container, all, order);
}

/* The most of each. */
static void count_most(const struct collection *now, size_t *ret_rows, size_t *ret_processes)
{
    size_t rows = 1, processes = 1;
    for (size_t c = 0; c < now->count; c++) {
        size_t devices = now->containers[c].device_count ? now->containers[c].device_count : 1;
        rows += devices * (now->containers[c].process_count + (size_t)1);
        if (now->containers[c].process_count > processes)
            processes = now->containers[c].process_count;
    }
    *ret_rows = rows;
    *ret_processes = processes;
}

static void select_line(struct top_model *model, long rows)
{
    long to = (long)model->selected + rows, last = (long)model->row_count - 1;
    to = to > last ? last : to;
    model->selected = to > 0 ? (size_t)to : 0;
    if (model->row_count)
        model->selected_key = top_row_key(&model->rows[model->selected]);
}

static void find_selected(struct top_model *model)
{
    size_t same_container = model->row_count;
    if (!model->follows)
        model->selected = 0;
    for (size_t i = 0; i < model->row_count && model->follows; i++) {
        struct top_key key = top_row_key(&model->rows[i]);
        if (top_key_compare(&key, &model->selected_key) == 0) {
            model->selected = i;
            return;
        }
        if (same_container == model->row_count && !key.pid &&
            key.file_device == model->selected_key.file_device &&
            key.file_inode == model->selected_key.file_inode)
            same_container = i;
    }
    if (same_container < model->row_count)
        model->selected = same_container;
    select_line(model, 0);
}

int top_model_arrange(struct top_model *model)
{
    size_t rows, processes;
    count_most(&model->now, &rows, &processes);
    struct top_row *made = malloc(rows * sizeof(*made));
    struct sorted *order = malloc((model->now.count + 1 + processes) * sizeof(*order));
    if (!made || !order) {
        free(made);
        free(order);
        return -ENOMEM;
    }
    free(model->rows);
    model->rows = made;
    model->row_count = 0;
    for (size_t c = 0; c < model->now.count; c++)
        order[c] = (struct sorted){c, value_of(model, &model->now.containers[c])};
    qsort_r(order, model->now.count, sizeof(*order), compare_sorted, model);
    for (size_t i = 0; i < model->now.count; i++)
        add_container(model, &model->now.containers[order[i].index], order + model->now.count);
    free(order);
    find_selected(model);
    return 0;
}

const struct top_row *top_model_selected(const struct top_model *model)
{
    return model->row_count ? &model->rows[model->selected] : NULL;
}

void top_model_move(struct top_model *model, long rows)
{
    model->follows = true;
    select_line(model, rows);
}
