/* SPDX-License-Identifier: Apache-2.0 */
#include "top/model.h"

#include "tool/tool.h"
#include "top/keys.h"

#include "check.h"

const char tool_name[] = "vgpu";

#define SECOND 1000000000ull

/* A look with so many containers, each with a device and a process; container c holds c MiB, has
 * had 10 c percent, and its process used gpu_time_ns. */
static struct collection look_of(unsigned count, uint64_t read_ns, uint64_t gpu_time_ns)
{
    struct collection look = {.containers = calloc(count + 1, sizeof(*look.containers))};
    look.count = count;
    for (unsigned c = 0; c < count; c++) {
        struct collected_container *container = &look.containers[c];
        *container = (struct collected_container){.file_device = 1,
            .file_inode = c + 1,
            .read_ns = read_ns,
            .priority = 5,
            .device_count = 1,
            .process_count = 1};
        container->path = malloc(32);
        snprintf(container->path, 32, "/region-%u", c);
        container->devices = calloc(2, sizeof(*container->devices));
        container->processes = calloc(2, sizeof(*container->processes));
        container->namespaces = calloc(2, sizeof(*container->namespaces));
        container->devices[0] = (struct collected_device){.uuid = "GPU-1",
            .memory = {.bytes = (uint64_t)c << 20},
            .core_limit = 50,
            .share_now = 10 * c,
            .share_minute = 10 * c};
        container->processes[0] = (struct collected_process){.pid = 100 + (int)c,
            .host_pid = 100 + (int)c,
            .command = strdup("python train.py"),
            .uses = calloc(2, sizeof(struct collected_use))};
        container->processes[0].uses[0].memory.bytes = (uint64_t)c << 20;
        container->processes[0].uses[0].gpu_time_ns = gpu_time_ns;
        container->processes[0].uses[0].gate = COLLECT_GATE_LAUNCH;
    }
    return look;
}

static void take(struct top_model *model, unsigned count, uint64_t now_ns, uint64_t gpu_time_ns)
{
    struct collection look = look_of(count, now_ns, gpu_time_ns);
    CHECK_EQ(top_model_take(model, &look, now_ns), 0);
}

static long inode_of(const struct top_model *model, size_t row)
{
    return row < model->row_count ? (long)model->rows[row].container->file_inode : -1;
}

TEST("a process's share is what it used between two looks, by the time between them")
{
    struct top_model model = {0};
    take(&model, 1, 10 * SECOND, 5 * SECOND);
    CHECK(top_model_share(&model, &model.rows[1]) < 0);
    take(&model, 1, 12 * SECOND, 5 * SECOND + SECOND / 2);
    CHECK_EQ((int)top_model_share(&model, &model.rows[1]), 25);
    take(&model, 1, 13 * SECOND, 9 * SECOND);
    CHECK_EQ((int)top_model_share(&model, &model.rows[1]), 100);
    take(&model, 1, 14 * SECOND, SECOND); /* another process has its number */
    CHECK(top_model_share(&model, &model.rows[1]) < 0);
    top_model_finish(&model);
}

TEST("a history says what was, and of looks without its container that nothing is known")
{
    struct top_model model = {0};
    take(&model, 3, SECOND, 0);
    take(&model, 3, 2 * SECOND, 0);
    take(&model, 2, 3 * SECOND, 0);
    take(&model, 2, 4 * SECOND, 0);
    take(&model, 3, 5 * SECOND, 0);
    const struct top_track *track = top_model_track(&model, &model.now.containers[2], 0);
    REQUIRE(track);
    const int wanted[] = {20, -1, -1, 20, 20, -1};
    for (unsigned age = 0; age < 6; age++)
        CHECK_EQ((int)top_history_gpu(&model, track->history, age), wanted[age]);
    CHECK_EQ((int)top_history_memory(&model, track->history, 3), 2 << 20);
    CHECK_EQ((int)top_history_gpu(&model, model.gpus[0].history, 0), 30);
    CHECK_EQ((int)top_history_gpu(&model, model.gpus[0].history, 1), 10);
    top_model_finish(&model);
}

TEST("a history keeps the newest looks, and one that is long gone is forgotten")
{
    struct top_model model = {0};
    for (unsigned i = 0; i < TOP_SAMPLES + 50; i++)
        take(&model, 2, (i + 1) * SECOND, 0);
    const struct top_track *track = top_model_track(&model, &model.now.containers[1], 0);
    CHECK_EQ((int)top_history_gpu(&model, track->history, TOP_SAMPLES - 1), 10);
    CHECK(top_history_gpu(&model, track->history, TOP_SAMPLES) < 0);
    for (unsigned i = 0; i < TOP_FORGET + 2; i++)
        take(&model, 1, (i + 10000) * SECOND, 0);
    CHECK_EQ((long)model.track_count, 1);
    take(&model, 0, 20000 * SECOND, 0);
    CHECK_EQ((long)model.gpu_count, 0);
    CHECK_EQ((long)model.row_count, 0);
    CHECK(!top_model_selected(&model));
    top_model_finish(&model);
}

TEST("rows are in the order that is asked for, and inverted")
{
    struct top_model model = {.hide_processes = true};
    take(&model, 3, SECOND, 0);
    CHECK_EQ(inode_of(&model, 0), 3); /* the most GPU time */
    model.sort = TOP_BY_NAME;
    CHECK_EQ(top_model_arrange(&model), 0);
    CHECK_EQ(inode_of(&model, 0), 1);
    model.reverse = true;
    CHECK_EQ(top_model_arrange(&model), 0);
    CHECK_EQ(inode_of(&model, 0), 3);
    model.reverse = false;
    model.sort = TOP_BY_PRIORITY;
    model.now.containers[1].priority = 0;
    CHECK_EQ(top_model_arrange(&model), 0);
    CHECK_EQ(inode_of(&model, 0), 2);
    CHECK_EQ(inode_of(&model, 1), 1);
    top_model_finish(&model);
}

TEST("the selection stays with its row, else its container, else the line; on the first line until "
     "it is moved")
{
    struct top_model model = {.sort = TOP_BY_NAME};
    take(&model, 3, SECOND, 0);
    model.sort = TOP_BY_GPU;
    CHECK_EQ(top_model_arrange(&model), 0);
    CHECK_EQ((long)model.selected, 0);
    top_model_move(&model, 3); /* the process of container 1 */
    CHECK_EQ((long)top_model_selected(&model)->process->pid, 101);
    model.sort = TOP_BY_NAME;
    model.reverse = true;
    CHECK_EQ(top_model_arrange(&model), 0);
    CHECK_EQ((long)top_model_selected(&model)->process->pid, 101);
    model.hide_processes = true;
    CHECK_EQ(top_model_arrange(&model), 0);
    CHECK_EQ(inode_of(&model, model.selected), 2);
    top_model_move(&model, -100);
    CHECK_EQ(inode_of(&model, model.selected), 3);
    take(&model, 2, 2 * SECOND, 0);
    CHECK_EQ((long)model.selected, 0);
    top_model_move(&model, 100);
    CHECK_EQ((long)model.selected, 1);
    top_model_finish(&model);
}

TEST("a filter takes containers with all processes, and processes with their container")
{
    struct top_model model = {0};
    take(&model, 3, SECOND, 0);
    snprintf(model.filter, sizeof(model.filter), "REGION-1");
    CHECK_EQ(top_model_arrange(&model), 0);
    CHECK_EQ((long)model.row_count, 2);
    snprintf(model.filter, sizeof(model.filter), "train");
    CHECK_EQ(top_model_arrange(&model), 0);
    CHECK_EQ((long)model.row_count, 6);
    snprintf(model.filter, sizeof(model.filter), "102");
    CHECK_EQ(top_model_arrange(&model), 0);
    CHECK_EQ((long)model.row_count, 2);
    CHECK_EQ(inode_of(&model, 0), 3);
    snprintf(model.filter, sizeof(model.filter), "none of them");
    CHECK_EQ(top_model_arrange(&model), 0);
    CHECK_EQ((long)model.row_count, 0);
    top_model_finish(&model);
}

static void press(struct top_input *input, struct top_model *model, const char *keys)
{
    for (; *keys; keys++)
        top_keys_press(input, model, *keys == '\n' ? TOP_KEY_ENTER : (unsigned char)*keys);
}

TEST("a change is for the container that was selected when it was begun, and is wanted after a yes "
     "alone")
{
    struct top_model model = {.sort = TOP_BY_NAME};
    struct top_input input = {.delay_ns = SECOND};
    take(&model, 3, SECOND, 0);
    press(&input, &model, "jjc40\n");
    CHECK_EQ(input.mode, TOP_CONFIRM);
    model.sort = TOP_BY_GPU;
    take(&model, 3, 2 * SECOND, 0);
    CHECK(!input.wants_order);
    press(&input, &model, "y");
    CHECK(input.wants_order);
    CHECK_EQ((long)input.order.file_inode, 2);
    CHECK(input.order.change.cores && !input.order.change.memory);
    CHECK_EQ(input.order.change.core_percent, 40);
    input.wants_order = false;
    press(&input, &model, "c40\nn");
    CHECK(!input.wants_order);
    press(&input, &model, "c400\n");
    CHECK_EQ(input.mode, TOP_LIST);
    CHECK(input.message_is_bad && strstr(input.message, "400"));
    press(&input, &model, "c\n");
    CHECK(!input.wants_order && input.mode == TOP_LIST);
    press(&input, &model, "py");
    CHECK(input.wants_order && input.order.is_pause && input.order.paused);
    CHECK(!input.order.change.cores);
    top_model_finish(&model);
}

TEST("a text takes characters of all lengths, loses them whole, and is bounded")
{
    struct top_model model = {0};
    struct top_input input = {.delay_ns = SECOND};
    press(&input, &model, "/a");
    top_keys_press(&input, &model, 0xf6);
    top_keys_press(&input, &model, 0x4e2d);
    top_keys_press(&input, &model, 0x1f600);
    CHECK_STR(input.text, "a\u00f6\u4e2d\U0001f600");
    top_keys_press(&input, &model, TOP_KEY_ERASE);
    top_keys_press(&input, &model, TOP_KEY_ERASE);
    CHECK_STR(input.text, "a\u00f6");
    top_keys_press(&input, &model, 7); /* steers terminals */
    for (int i = 0; i < 1000; i++)
        top_keys_press(&input, &model, 0x4e2d);
    CHECK(strlen(input.text) < sizeof(input.text));
    top_keys_press(&input, &model, TOP_KEY_ESCAPE);
    CHECK_STR(model.filter, "");
    top_model_finish(&model);
}

int main(int argc, char **argv)
{
    return check_run(argc, argv);
}
