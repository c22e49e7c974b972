#include "common/engine/model/load_progress.h"

#include "common/base/log.h"

#include <inttypes.h>

#define BAR_CELLS       30
#define ANNOUNCED_BYTES ((uint64_t)256 << 20) /* about half a second */

struct load_progress load_progress_begin(const char *what, uint64_t total_bytes, FILE *terminal,
                                         uint64_t now_us)
{
    return (struct load_progress){.line = progress_line_begin(terminal, now_us),
                                  .what = what,
                                  .total_bytes = total_bytes,
                                  .started_us = now_us};
}

static void draw(struct load_progress *progress, unsigned percent, const char *left)
{
    char bar[BAR_CELLS + 1];
    for (unsigned i = 0; i < BAR_CELLS; i++)
        bar[i] = i * 100 < percent * BAR_CELLS ? '#' : '-';
    bar[BAR_CELLS] = '\0';
    progress_line_tell(&progress->line, "%s [%s] %3u%% of %.1f GiB%s", progress->what, bar, percent,
                       (double)progress->total_bytes / (1 << 30), left);
}

void load_progress_announce(struct load_progress *progress)
{
    uint64_t bytes = progress->total_bytes;
    if (bytes < ANNOUNCED_BYTES)
        return;
    if (progress->line.terminal)
        progress_line_tell(&progress->line, "%s, %.1f GiB", progress->what,
                           (double)bytes / (1 << 30));
    else
        log_info("weights", "msg=\"%s\" of_bytes=%" PRIu64, progress->what, bytes);
}

void load_progress_add(struct load_progress *progress, uint64_t bytes, uint64_t now_us)
{
    uint64_t total = progress->total_bytes;
    progress->done_bytes =
        bytes < total - progress->done_bytes ? progress->done_bytes + bytes : total;
    if (!progress->done_bytes || !progress_line_due(&progress->line, now_us))
        return;
    double done = (double)progress->done_bytes / (double)total;
    double passed_s = (double)(now_us - progress->started_us) / 1e6;
    unsigned percent = (unsigned)(done * 100);
    char left[40] = ""; /* empty below one percent, which foretells nothing */
    if (percent)
        snprintf(left, sizeof left, progress->line.terminal ? ", %.0f s left" : " left_s=%.0f",
                 passed_s / done - passed_s);
    if (progress->line.terminal)
        draw(progress, percent, left);
    else
        log_info("weights", "msg=\"%s\" percent=%u of_bytes=%" PRIu64 "%s", progress->what, percent,
                 total, left);
}

void load_progress_end(struct load_progress *progress)
{
    progress_line_end(&progress->line);
}
