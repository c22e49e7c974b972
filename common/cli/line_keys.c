#include "common/cli/line_keys.h"

#include <histedit.h>
#include <string.h>

#define ESCAPE 0x1b

/* Keys that libedit doesn't know by itself, as most terminals send them. */
static const char *const keys[][2] = {
    {"\033[1~", "ed-move-to-beg"},      {"\033[4~", "ed-move-to-end"},
    {"\033[7~", "ed-move-to-beg"},      {"\033[8~", "ed-move-to-end"},
    {"\033[3~", "ed-delete-next-char"}, {"\033[1;5C", "em-next-word"},
    {"\033[1;5D", "ed-prev-word"},      {"\033[1;3C", "em-next-word"},
    {"\033[1;3D", "ed-prev-word"},      {"\033[2~", "ed-unassigned"},
    {"\033[5~", "ed-unassigned"},       {"\033[6~", "ed-unassigned"},
};

/* Also for those who bind others in ~/.editrc. */
static const char *const own_keys[][2] = {
    {"\033[200~", "take-paste"}, {"^R", "search"},         {"\033[A", "take-older"},
    {"\033[B", "take-newer"},    {"\033OA", "take-older"}, {"\033OB", "take-newer"},
    {"^P", "take-older"},        {"^N", "take-newer"},
};

/* And in vi's mode of commands. */
static const char *const command_keys[][2] = {
    {"k", "take-older"}, {"j", "take-newer"}, {"/", "search"}, {"^R", "search"}};

/* Keys of ours that terminals send as several characters from Escape on. With vi's keys, where
 * Escape is a key by itself that ends a mode, each comes to libedit as one, in the control
 * characters that no keyboard has. */
static const struct {
    const wchar_t *rest, *whole, *what;
} long_keys[] = {
    {L"[200~", L"\x81", L"take-paste"}, {L"[A", L"\x82", L"take-older"},
    {L"OA", L"\x82", L"take-older"},    {L"[B", L"\x83", L"take-newer"},
    {L"OB", L"\x83", L"take-newer"},
};
#define LONG_KEYS (sizeof long_keys / sizeof *long_keys)

bool line_keys_begin(const wchar_t *taken, size_t count, const wchar_t **whole)
{
    bool begins = false;
    for (size_t i = 0; i < LONG_KEYS; i++) {
        if (wcsncmp(long_keys[i].rest, taken, count) != 0)
            continue;
        begins = true;
        if (!long_keys[i].rest[count])
            *whole = long_keys[i].whole;
    }
    return begins;
}

bool line_keys_bind(EditLine *edit)
{
    const char *mode = "emacs";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        el_set(edit, EL_BIND, keys[i][0], keys[i][1], NULL);
    el_source(edit, NULL); /* there need not be one */
    el_get(edit, EL_EDITOR, &mode);
    bool has_modes = !strcmp(mode, "vi");
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        if (!has_modes || *own_keys[i][0] != ESCAPE)
            el_set(edit, EL_BIND, own_keys[i][0], own_keys[i][1], NULL);
    if (!has_modes)
        return false;
    for (size_t i = 0; i < LONG_KEYS; i++) {
        el_wset(edit, EL_BIND, long_keys[i].whole, long_keys[i].what, NULL);
        el_wset(edit, EL_BIND, L"-a", long_keys[i].whole, long_keys[i].what, NULL);
    }
    for (size_t i = 0; i < sizeof command_keys / sizeof *command_keys; i++)
        el_set(edit, EL_BIND, "-a", command_keys[i][0], command_keys[i][1], NULL);
    return true;
}
