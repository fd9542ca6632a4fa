/* SPDX-License-Identifier: Apache-2.0 */
#include "top/terminal.h"

#include "host/say.h"
#include "top/keys.h"

#define NCURSES_NOMACROS
#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <term.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#define ESCAPE_MS 50 /* after which an escape is one, not the begin of a key's sequence */

static bool taken;
static struct termios before;
static char give_back[256]; /* what ends the screen, where ncurses may not be called */
static size_t give_back_length;

static const int endings[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

int top_terminal_block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (unsigned i = 0; i < COUNT(endings); i++)
        sigaddset(&set, endings[i]);
    sigaddset(&set, SIGTSTP);
    sigaddset(&set, SIGCONT);
    sigaddset(&set, SIGWINCH);
    int error = pthread_sigmask(SIG_BLOCK, &set, NULL);
    int descriptor = error ? -1 : signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return error ? -error : descriptor < 0 ? -errno : descriptor;
}

/* Only what may be called in a signal's handler. */
static void restore_by_hand(int number)
{
    if (taken) {
        (void)!write(STDOUT_FILENO, give_back, give_back_length);
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
    raise(number); /* SA_RESETHAND: now it ends */
}

/* A sequence of the terminal's description, without the delays in it. */
static void remember(const char *name)
{
    const char *text = tigetstr((char *)name);
    if (!text || text == (char *)-1)
        return;
    for (; *text && give_back_length < sizeof(give_back); text++) {
        const char *end = text[0] == '$' && text[1] == '<' ? strchr(text, '>') : NULL;
        if (end)
            text = end;
        else
            give_back[give_back_length++] = *text;
    }
}

static void watch_crashes(void)
{
    static const char *const names[] = {"sgr0", "cnorm", "rmkx", "rmcup"};
    struct sigaction action = {
        .sa_handler = restore_by_hand, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
    for (unsigned i = 0; i < COUNT(names); i++)
        remember(names[i]);
    for (unsigned i = 0; i < COUNT(crashes); i++)
        sigaction(crashes[i], &action, NULL);
}

/* What the terminal is now, not what the environment says of it. */
static void take_size(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row && size.ws_col)
        (void)resizeterm(size.ws_row, size.ws_col);
}

static bool refuse(const char *why)
{
    say_error("%s; 'vgpu ps' lists the same once, --batch N several times", why);
    return false;
}

static void set_up(bool wants_colour)
{
    noecho();
    cbreak();
    nonl();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    set_escdelay(ESCAPE_MS);
    curs_set(0);
    if (wants_colour && has_colors()) {
        start_color();
        use_default_colors();
        for (short colour = 1; colour < 8; colour++)
            init_pair(colour, colour, -1);
    }
}

bool top_terminal_begin(bool wants_colour)
{
    int error;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return refuse("this is no terminal");
    const char *name = getenv("TERM");
    if (!name || !*name)
        return refuse("TERM does not say which terminal this is");
    if (setupterm(NULL, STDOUT_FILENO, &error) != OK)
        return refuse("TERM names a terminal that is not known here");
    const char *move = tigetstr((char *)"cup");
    if (!move || move == (char *)-1)
        return refuse("TERM names a terminal on which one cannot draw");
    if (tcgetattr(STDIN_FILENO, &before) != 0 || !newterm(NULL, stdout, stdin))
        return refuse("the terminal cannot be used");
    set_up(wants_colour);
    taken = true;
    watch_crashes();
    take_size();
    return true;
}

bool top_terminal_has_colour(void)
{
    return taken && has_colors() && COLOR_PAIRS > 7;
}

void top_terminal_end(void)
{
    if (!taken)
        return;
    endwin();
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    taken = false;
}

static uint32_t press_of(wint_t key)
{
    switch (key) {
    case KEY_UP:
        return TOP_KEY_UP;
    case KEY_DOWN:
        return TOP_KEY_DOWN;
    case KEY_PPAGE:
        return TOP_KEY_PAGE_UP;
    case KEY_NPAGE:
        return TOP_KEY_PAGE_DOWN;
    case KEY_HOME:
        return TOP_KEY_FIRST;
    case KEY_END:
        return TOP_KEY_LAST;
    case KEY_ENTER:
        return TOP_KEY_ENTER;
    case KEY_BACKSPACE:
    case KEY_DC:
        return TOP_KEY_ERASE;
    default:
        return 0;
    }
}

bool top_terminal_key(uint32_t *ret_key)
{
    wint_t key;
    int kind = get_wch(&key);
    if (kind == ERR)
        return false;
    if (kind == KEY_CODE_YES)
        *ret_key = press_of(key);
    else if (key == '\r' || key == '\n')
        *ret_key = TOP_KEY_ENTER;
    else if (key == 27)
        *ret_key = TOP_KEY_ESCAPE;
    else if (key == 127 || key == 8)
        *ret_key = TOP_KEY_ERASE;
    else if (key == 12) { /* ^L */
        clearok(curscr, TRUE);
        *ret_key = 0;
    } else
        *ret_key = key;
    return true;
}

static void take_again(void)
{
    reset_prog_mode();
    take_size();
    clearok(curscr, TRUE);
}

/* ncurses has put a handler of its own there; it never ran. */
static void set_default(int number)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigset_t set;
    sigaction(number, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void stop(void)
{
    sigset_t set;
    endwin();
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
    set_default(SIGTSTP);
    raise(SIGTSTP);
    sigemptyset(&set);
    sigaddset(&set, SIGTSTP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    take_again();
}

int top_terminal_signal(int descriptor)
{
    struct signalfd_siginfo signal_read;
    if (read(descriptor, &signal_read, sizeof(signal_read)) != (ssize_t)sizeof(signal_read))
        return 0;
    int number = (int)signal_read.ssi_signo;
    if (number == SIGTSTP)
        stop();
    else if (number == SIGCONT)
        take_again();
    else if (number == SIGWINCH)
        take_size();
    else
        return number;
    return 0;
}

void top_terminal_die(int number)
{
    top_terminal_end();
    set_default(number);
    raise(number);
    _exit(128 + number); /* where the signal is ignored */
}
