#include "common/engine/model/load_progress.h"

#include "common/base/log.h"

#include <inttypes.h>
#include <unistd.h>

#define DRAW_INTERVAL_US 100000
#define LOG_INTERVAL_US  3000000
#define BAR_CELLS        30

FILE *load_progress_terminal(void)
{
    return isatty(STDERR_FILENO) ? stderr : NULL;
}

struct load_progress load_progress_begin(const char *what, uint64_t total_bytes, FILE *terminal,
                                         uint64_t now_us)
{
    return (struct load_progress){.terminal = terminal,
                                  .what = what,
                                  .total_bytes = total_bytes,
                                  .started_us = now_us,
                                  .told_us = now_us};
}

static void draw(struct load_progress *progress, unsigned percent, const char *left)
{
    char bar[BAR_CELLS + 1];
    for (unsigned i = 0; i < BAR_CELLS; i++)
        bar[i] = i * 100 < percent * BAR_CELLS ? '#' : '-';
    bar[BAR_CELLS] = '\0';
    fprintf(progress->terminal, "\r%s [%s] %3u%% of %.1f GiB%s \033[K", progress->what, bar,
            percent, (double)progress->total_bytes / (1 << 30), left);
    fflush(progress->terminal);
    progress->drawn = true;
}

void load_progress_add(struct load_progress *progress, uint64_t bytes, uint64_t now_us)
{
    uint64_t total = progress->total_bytes;
    uint64_t interval_us = progress->terminal ? DRAW_INTERVAL_US : LOG_INTERVAL_US;
    progress->done_bytes =
        bytes < total - progress->done_bytes ? progress->done_bytes + bytes : total;
    if (now_us - progress->told_us < interval_us || !progress->done_bytes)
        return;
    progress->told_us = now_us;
    double done = (double)progress->done_bytes / (double)total;
    double passed_s = (double)(now_us - progress->started_us) / 1e6;
    unsigned percent = (unsigned)(done * 100);
    char left[40] = ""; /* less than a hundredth foretells nothing */
    if (percent)
        snprintf(left, sizeof left, progress->terminal ? ", %.0f s left" : " left_s=%.0f",
                 passed_s / done - passed_s);
    if (progress->terminal)
        draw(progress, percent, left);
    else
        log_info("weights", "msg=\"%s\" percent=%u of_bytes=%" PRIu64 "%s", progress->what, percent,
                 total, left);
}

void load_progress_end(struct load_progress *progress)
{
    if (!progress->drawn)
        return;
    fputs("\r\033[K", progress->terminal);
    fflush(progress->terminal);
    progress->drawn = false;
}
