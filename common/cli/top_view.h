/* What `baton top` shows: one look at a cluster, and what changed since the look before it. */
#ifndef BATON_CLI_TOP_VIEW_H
#define BATON_CLI_TOP_VIEW_H

#include "common/cli/cluster_status.h"

struct top_look {
    uint64_t at_us; /* monotonic */
    struct cluster_status status;
};

/* `before`: NULL where there was none, or the router is another one: no rates. `lines` at most (0:
 * as many as there are): of more workers the last line says how many. Fits into 80 columns. */
void top_view_print(const struct top_look *before, const struct top_look *now, unsigned lines,
                    bool color, struct str *out);

#endif
