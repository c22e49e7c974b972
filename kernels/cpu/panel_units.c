#include "kernels/cpu/panel_units.h"

/* By how much units of the whole panels are fewer than these. */
static uint32_t joined(const struct panel_units *units, uint32_t threads)
{
    return threads * units->run * (units->streams - 1);
}

struct panel_units panel_units_of(uint32_t threads, uint32_t streams, uint32_t whole, uint32_t cut)
{
    struct panel_units units = {
        .threads = threads, .streams = streams, .whole = whole, .run = whole / threads / streams};
    units.count = whole - joined(&units, threads) + cut;
    return units;
}

struct panel_unit panel_unit_at(const struct panel_units *units, uint32_t number)
{
    uint32_t of_whole = units->whole - joined(units, units->threads);
    if (number >= of_whole)
        return (struct panel_unit){.first = units->whole + number - of_whole};
    /* Region t begins at panel whole * t / threads, so at unit of_whole * t / threads. */
    uint32_t t = (uint32_t)(((uint64_t)units->threads * (number + 1) - 1) / of_whole);
    uint32_t begin = (uint32_t)((uint64_t)units->whole * t / units->threads);
    uint32_t place = number - (begin - joined(units, t));
    if (place < units->run)
        return (struct panel_unit){.first = begin + place,
                                   .apart = units->streams > 1 ? units->run : 0};
    return (struct panel_unit){.first = begin + units->run * (units->streams - 1) + place};
}
