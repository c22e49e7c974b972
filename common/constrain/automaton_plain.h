/* Internal to building: how many plain characters each state takes, whichever they are (plain_all, plain_most). */
#ifndef BATON_CONSTRAIN_AUTOMATON_PLAIN_H
#define BATON_CONSTRAIN_AUTOMATON_PLAIN_H

#include "common/constrain/automaton.h"

/* Plain: no control character, no quote, no backslash. They are most of what tokens spell. */
static inline bool plain_byte(uint8_t byte)
{
    return byte >= 0x20 && byte != '"' && byte != '\\';
}

/* Everything else of the automaton is there. */
void automaton_find_plain(struct automaton *automaton);

#endif
