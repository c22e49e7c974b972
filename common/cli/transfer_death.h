/* How long a reader waits for the news: the time from kill -9 of the owner of a pool to the first
 * read that fails, by lane. The owners are processes of their own, all started before anything else
 * happens in this one (transfer_owner.h says why). */
#ifndef BATON_CLI_TRANSFER_DEATH_H
#define BATON_CLI_TRANSFER_DEATH_H

#include "common/cli/transfer_owner.h"

#define TRANSFER_MAX_DEATHS 50

struct transfer_deaths;

/* `count` owners for each lane of the plan. */
enum status transfer_deaths_prepare(const struct transfer_plan *plan, size_t count,
                                    struct transfer_deaths **deaths, struct error *err) WARN_UNUSED;
void transfer_deaths_close(struct transfer_deaths *deaths);

/* Reads from each owner of the lane without a pause, kills it, and notes the time: seconds[count].
 * Once a lane. */
enum status transfer_deaths_measure(struct transfer_deaths *deaths, enum transfer_lane lane,
                                    double *seconds, struct error *err) WARN_UNUSED;

#endif
