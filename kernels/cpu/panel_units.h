/* How the panels of a layer are dealt to threads that read several side by side. Pure. */
#ifndef BATON_KERNELS_CPU_PANEL_UNITS_H
#define BATON_KERNELS_CPU_PANEL_UNITS_H

#include <stdint.h>

/* Each thread has a region of neighbouring panels, and in it streams of `run` neighbouring panels
 * each. A unit is one panel of each stream of a region, and the next unit the panels behind them: a
 * stream runs on from one to the next, so that what it has asked for ahead is what it reads next,
 * however few units a thread takes at a time. What the streams of a region leave are units of one
 * panel. Dealt out evenly, as pool_run does, a thread's units are those of its region, but for some
 * at the borders where it takes several at a time, or a panel is cut. */
struct panel_units {
    uint32_t threads, streams, whole, run;
    uint32_t count; /* of units */
};

/* `whole` panels, and behind them `cut` ones that no stream takes. `streams` >= 1; at 1, units are
 * panels. */
struct panel_units panel_units_of(uint32_t threads, uint32_t streams, uint32_t whole, uint32_t cut);

/* As many panels as there are streams from `first` on, each `apart` panels behind the one before;
 * or `first` alone, if that is 0. */
struct panel_unit {
    uint32_t first, apart;
};

struct panel_unit panel_unit_at(const struct panel_units *units, uint32_t number);

#endif
